// Attention of one head: queries of a text over its keys and values, (T, D) each.

#pragma once

#include <cmath>

#include "product.h"

namespace nanogpt {

constexpr int64_t GROUP = WIDE < 4 ? 2 : 4;  // queries of a text that share a pass over its keys

// Softmax of T scores, but for the division: returns what to multiply by.
inline float soften(float* scores, int64_t T) {
    float most = scores[0];
    for (int64_t t = 1; t < T; t++) most = scores[t] > most ? scores[t] : most;
    Vec sums = {};
    for (int64_t t = 0; t < T; t += LANES) {
        const int64_t n = T - t < LANES ? T - t : LANES;
        const Vec in = n == LANES ? load(scores + t) : load_part(scores + t, n);
        const Vec p = exponential(in - most);
        store_part(scores + t, p, n);
        sums += n == LANES ? p : load_part(scores + t, n);
    }
    return 1.0f / total(sums);
}

// J vectors of columns of what N queries attend to: query n weighs T + n values.
template <int N, int J>
inline void mix(const float* scores, int64_t room, const float* values, int64_t T, int64_t D,
                const float* share, float* out, int64_t stride) {
    Vec mixed[N][J] = {};
    for (int64_t t = 0; t < T; t++)
        for (int j = 0; j < J; j++) {
            const Vec v = load(values + t * D + j * LANES);
            for (int n = 0; n < N; n++)
                mixed[n][j] = fused(splat(scores[n * room + t]), v, mixed[n][j]);
        }
    for (int n = 0; n < N; n++) {
        for (int64_t t = T; t < T + n; t++)
            for (int j = 0; j < J; j++)
                mixed[n][j] = fused(splat(scores[n * room + t]),
                                    load(values + t * D + j * LANES), mixed[n][j]);
        for (int j = 0; j < J; j++) store(out + n * stride + j * LANES, mixed[n][j] * share[n]);
    }
}

// N queries of one text, at positions T - 1, T, ...: each sees one key more than the one before.
// Queries are `apart` floats apart, scores `room`, outputs `stride`.
template <int N>
void attend(const float* q, int64_t apart, const float* keys, const float* values, int64_t T,
            int64_t D, float* scores, int64_t room, float* out, int64_t stride) {
    const int64_t most = T + N - 1;
    int64_t t = 0;
    for (; t + 4 <= most; t += 4) tile<float, 4, N>(keys + t * D, q, apart, D, scores + t, room);
    for (; t < most; t++) tile<float, 1, N>(keys + t * D, q, apart, D, scores + t, room);
    const float scale = 1.0f / std::sqrt((float)D);
    float share[N];
    for (int n = 0; n < N; n++) {
        for (t = 0; t < T + n; t++) scores[n * room + t] *= scale;
        share[n] = soften(scores + n * room, T + n);
    }
    int64_t d = 0;
    for (; d + 4 * LANES <= D; d += 4 * LANES)
        mix<N, 4>(scores, room, values + d, T, D, share, out + d, stride);
    for (; d + 2 * LANES <= D; d += 2 * LANES)
        mix<N, 2>(scores, room, values + d, T, D, share, out + d, stride);
    for (; d + LANES <= D; d += LANES)
        mix<N, 1>(scores, room, values + d, T, D, share, out + d, stride);
    for (int n = 0; n < N && d < D; n++) {
        Vec sum = {};
        for (t = 0; t < T + n; t++)
            sum = fused(splat(scores[n * room + t]), load_part(values + t * D + d, D - d), sum);
        store_part(out + n * stride + d, sum * share[n], D - d);
    }
}

}  // namespace nanogpt
