// Rows times a matrix as stored, [out, in]: out[n][r] = sum over k of w[r][k] * x[n][k].
//
// Each output is one vector of partial sums that runs over the columns once. Tiles differ in how
// many outputs they hold in registers, and never in what is added to what: a row's outputs are the
// same, bit for bit, alone and among others.

#pragma once

#include "lanes.h"

namespace nanogpt {

// Rows of x in a tile at most: 4 * WIDE sums, the widened weights and x share the registers.
#if defined(NANOGPT_AVX512)
constexpr int64_t WIDE = 6;
#elif defined(NANOGPT_AVX2)
constexpr int64_t WIDE = 2;
#else
constexpr int64_t WIDE = 4;
#endif

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

// For N rows of x, and R rows of weights that begin at w; `stride` parts the rows of out.
template <class W>
void product(const W* w, const float* x, int64_t N, int64_t K, int64_t R, float* out,
             int64_t stride) {
    switch (N) {  // what one tile holds reads the weights once
        case 1: return tiles<W, 1, true>(w, x, K, R, out, stride);
        case 2: return tiles<W, 2, true>(w, x, K, R, out, stride);
#if !defined(NANOGPT_AVX2)
        case 3: return tiles<W, 3, true>(w, x, K, R, out, stride);
        case 4: return tiles<W, 4, true>(w, x, K, R, out, stride);
#endif
#if defined(NANOGPT_AVX512)
        case 5: return tiles<W, 5, true>(w, x, K, R, out, stride);
        case 6: return tiles<W, 6, true>(w, x, K, R, out, stride);
        case 7: return tiles<W, 7, true>(w, x, K, R, out, stride);
        case 8: return tiles<W, 8, true>(w, x, K, R, out, stride);
#endif
    }
    int64_t n = 0;
    for (; n + WIDE <= N; n += WIDE)
        tiles<W, WIDE, false>(w, x + n * K, K, R, out + n * stride, stride);
    if (n < N) product(w, x + n * K, N - n, K, R, out + n * stride, stride);
}

}  // namespace nanogpt
