// Rows times a matrix as stored, [out, in]: out[n][r] = sum over k of w[r][k] * x[n][k].
//
// Each output is one vector of partial sums that runs over the columns once. Tiles differ in how
// many outputs they hold in registers, and never in what is added to what: a row's outputs are the
// same, bit for bit, alone and among others.

#pragma once

#include "lanes.h"

namespace nanogpt {

// Rows of x that one tile holds at most, and those of the tiles for many rows: the sums, the
// widened weights and x share the registers.
#if defined(NANOGPT_AVX512)
constexpr int64_t MOST = 8, WIDE = 6;
#elif defined(NANOGPT_AVX2)
constexpr int64_t MOST = 2, WIDE = 2;
#else
constexpr int64_t MOST = 4, WIDE = 4;
#endif

// Up to so many rows of x stay in the first cache while a band of weights passes by.
constexpr int64_t FEW = 16, BAND = 12;

// `apart` parts the rows of x, `stride` those of out.
template <class W, int R, int N, bool AHEAD = false>
inline void tile(const W* w, const float* x, int64_t apart, int64_t K, float* out,
                 int64_t stride) {
    Vec sums[R][N] = {};
    int64_t k = 0;
    for (; k + LANES <= K; k += LANES) {
        Vec xs[N];
        for (int n = 0; n < N; n++) xs[n] = load(x + n * apart + k);
        for (int r = 0; r < R; r++) {
            const Vec ws = widen(w + r * K + k);
            if (AHEAD) {
                // Later tiles' weights, in the order of memory: R rows side by side are more
                // streams than the hardware follows. One x leaves the first cache to the weights.
                constexpr int TILES = N == 1 ? 1 : 2, LEVEL = N == 1 ? 3 : 2;
                __builtin_prefetch(w + TILES * R * K + k * R + r * LANES, 0, LEVEL);
            }
            for (int n = 0; n < N; n++) sums[r][n] = fused(ws, xs[n], sums[r][n]);
        }
    }
    if (k < K) {
        for (int r = 0; r < R; r++) {
            const Vec ws = widen_part(w + r * K + k, K - k);
            for (int n = 0; n < N; n++)
                sums[r][n] = fused(ws, load_part(x + n * apart + k, K - k), sums[r][n]);
        }
    }
    for (int n = 0; n < N; n++) {
        int r = 0;
        for (; r + 4 <= R; r += 4) totals(&sums[r][n], N, out + n * stride + r);
        for (; r < R; r++) out[n * stride + r] = total(sums[r][n]);
    }
}

template <class W, int N, bool AHEAD>
inline void tiles(const W* w, const float* x, int64_t K, int64_t R, float* out, int64_t stride) {
    constexpr int TALL = N == 1 ? 4 : N <= 6 ? 4 : 3;
    int64_t r = 0;
    for (; r + TALL <= R; r += TALL) tile<W, TALL, N, AHEAD>(w + r * K, x, K, K, out + r, stride);
    for (; r < R; r++) tile<W, 1, N, AHEAD>(w + r * K, x, K, K, out + r, stride);
}

// For N rows of x, MOST at most.
template <class W, bool AHEAD>
void block(const W* w, const float* x, int64_t N, int64_t K, int64_t R, float* out,
           int64_t stride) {
    switch (N) {
        case 1: return tiles<W, 1, AHEAD>(w, x, K, R, out, stride);
        case 2: return tiles<W, 2, AHEAD>(w, x, K, R, out, stride);
#if !defined(NANOGPT_AVX2)
        case 3: return tiles<W, 3, AHEAD>(w, x, K, R, out, stride);
        case 4: return tiles<W, 4, AHEAD>(w, x, K, R, out, stride);
#endif
#if defined(NANOGPT_AVX512)
        case 5: return tiles<W, 5, AHEAD>(w, x, K, R, out, stride);
        case 6: return tiles<W, 6, AHEAD>(w, x, K, R, out, stride);
        case 7: return tiles<W, 7, AHEAD>(w, x, K, R, out, stride);
        case 8: return tiles<W, 8, AHEAD>(w, x, K, R, out, stride);
#endif
    }
}

// For N rows of x, and R rows of weights that begin at w; `stride` parts the rows of out.
template <class W>
void product(const W* w, const float* x, int64_t N, int64_t K, int64_t R, float* out,
             int64_t stride) {
    if (N <= MOST) return block<W, true>(w, x, N, K, R, out, stride);
    if (N > FEW) {  // each few rows of x meet all of these weights, which the second cache holds
        for (int64_t n = 0; n < N; n += WIDE)
            block<W, false>(w, x + n * K, N - n < WIDE ? N - n : WIDE, K, R, out + n * stride,
                            stride);
        return;
    }
    const int64_t blocks = (N + MOST - 1) / MOST, width = (N + blocks - 1) / blocks;
    for (int64_t r = 0; r < R; r += BAND) {  // each few weights meet all rows of x
        const int64_t height = R - r < BAND ? R - r : BAND;
        const W* band = w + r * K;
        block<W, true>(band, x, width, K, height, out + r, stride);
        for (int64_t n = width; n < N; n += width)
            block<W, false>(band, x + n * K, N - n < width ? N - n : width, K, height,
                            out + n * stride + r, stride);
    }
}

}  // namespace nanogpt
