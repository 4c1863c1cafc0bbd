// Vectors of floats: loads that widen, sums in a fixed order, exp and GELU.
//
// LANES is what the compiler's target has. Nothing here depends on how many rows are computed.

#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define NANOGPT_AVX512
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define NANOGPT_AVX2
#include <immintrin.h>
#elif defined(__aarch64__)
#define NANOGPT_NEON
#include <arm_neon.h>
#endif

namespace nanogpt {

#if defined(NANOGPT_AVX512)
constexpr int LANES = 16;
#elif defined(NANOGPT_AVX2)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Shorts __attribute__((vector_size(2 * LANES)));
typedef int8_t Bytes __attribute__((vector_size(LANES)));

// The stored types beside float and int8_t: float16 and bfloat16, as bits.
struct Half { uint16_t bits; };
struct Brain { uint16_t bits; };

template <class V, class T>
inline V load_as(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Vec load(const float* from) { return load_as<Vec>(from); }
inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }
inline Vec splat(float x) { return x - Vec{}; }

inline Vec load_part(const float* from, int64_t n) {
    float lanes[LANES] = {};
    std::memcpy(lanes, from, n * sizeof(float));
    return load(lanes);
}
inline void store_part(float* to, Vec v, int64_t n) { std::memcpy(to, &v, n * sizeof(float)); }

// a * b + c, rounded once where the machine can.
inline Vec fused(Vec a, Vec b, Vec c) {
#if defined(NANOGPT_AVX512)
    return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(NANOGPT_AVX2)
    return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(NANOGPT_NEON)
    return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// The sum of the lanes: halves are added to halves.
inline float total(Vec v) {
#if defined(NANOGPT_AVX512)
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256((__m512)v),
                                   _mm512_extractf32x8_ps((__m512)v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
#else
    float lanes[LANES];
    std::memcpy(lanes, &v, sizeof lanes);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
#endif
}

// The same for four vectors at once: the sums, and the order of each, are those of `total`.
inline void totals(const Vec* four, int64_t apart, float* out) {
#if defined(NANOGPT_AVX512)
    const __m512 a = (__m512)four[0], b = (__m512)four[apart];
    const __m512 c = (__m512)four[2 * apart], d = (__m512)four[3 * apart];
    const __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44),
                                    _mm512_shuffle_f32x4(a, b, 0xee));
    const __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44),
                                    _mm512_shuffle_f32x4(c, d, 0xee));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88),
                                     _mm512_shuffle_f32x4(ab, cd, 0xdd));
    const __m512 pairs = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4e));
    const __m512 sums = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xb1));
    const __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(first, sums)));
#else
    for (int i = 0; i < 4; i++) out[i] = total(four[i * apart]);
#endif
}

inline float widen_one(float w) { return w; }
inline float widen_one(int8_t w) { return w; }
inline float widen_one(Brain w) {
    const uint32_t bits = (uint32_t)w.bits << 16;
    return load_as<float>(&bits);
}
inline float widen_one(Half w) {
    const uint32_t size = w.bits & 0x7fff, sign = (uint32_t)(w.bits & 0x8000) << 16;
    uint32_t bits = size << 13;
    if (size >= 0x7c00) {
        bits |= 0x7f800000;  // infinite or NaN
    } else {
        const float scaled = load_as<float>(&bits) * 0x1p112f;  // the exponents' distance
        bits = load_as<uint32_t>(&scaled);
    }
    bits |= sign;
    return load_as<float>(&bits);
}

template <class W>
inline Vec widen_part(const W* w, int64_t n) {
    float lanes[LANES] = {};
    for (int64_t i = 0; i < n; i++) lanes[i] = widen_one(w[i]);
    return load(lanes);
}

inline Vec widen(const float* w) { return load(w); }
inline Vec widen(const Brain* w) {
    return (Vec)(__builtin_convertvector(load_as<Shorts>(w), Words) << 16);
}
inline Vec widen(const Half* w) {
#if defined(NANOGPT_AVX512)
    return (Vec)_mm512_cvtph_ps(load_as<__m256i>(w));
#elif defined(NANOGPT_AVX2)
    return (Vec)_mm256_cvtph_ps(load_as<__m128i>(w));
#elif defined(NANOGPT_NEON)
    return (Vec)vcvt_f32_f16((float16x4_t)load_as<uint16x4_t>(w));
#else
    return widen_part(w, LANES);
#endif
}
inline Vec widen(const int8_t* w) {
#if defined(NANOGPT_AVX512)
    return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_as<__m128i>(w)));
#elif defined(NANOGPT_AVX2)
    return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)w)));
#else
    return __builtin_convertvector(load_as<Bytes>(w), Vec);
#endif
}

// e^x to 2e-7 of its size; NaN stays NaN. Reduced by powers of two, then a polynomial (Cephes').
inline Vec exponential(Vec x) {
    x = x < -87.0f ? splat(-87.0f) : x > 88.0f ? splat(88.0f) : x;
    const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vec n = fused(x, splat(1.44269504f), magic) - magic;
    const Vec r = fused(n, splat(2.12194440e-4f), fused(n, splat(-0.693359375f), x));
    Vec p = splat(1.9875691500e-4f);
    p = fused(p, r, splat(1.3981999507e-3f));
    p = fused(p, r, splat(8.3334519073e-3f));
    p = fused(p, r, splat(4.1665795894e-2f));
    p = fused(p, r, splat(1.6666665459e-1f));
    p = fused(p, r, splat(5.0000001201e-1f));
    p = fused(p * r, r, r) + 1.0f;
    return p * (Vec)((__builtin_convertvector(n, Ints) + 127) << 23);
}

// x * Phi(x), with erf to 1.5e-7 (Abramowitz and Stegun 7.1.26).
inline Vec gelu(Vec x) {
    const Vec z = x * 0.70710678f, size = z < 0.0f ? -z : z;
    const Vec t = 1.0f / fused(size, splat(0.3275911f), splat(1.0f));
    Vec p = splat(1.061405429f);
    p = fused(p, t, splat(-1.453152027f));
    p = fused(p, t, splat(1.421413741f));
    p = fused(p, t, splat(-0.284496736f));
    p = fused(p, t, splat(0.254829592f));
    const Vec rest = p * t * exponential(-size * size);  // 1 - erf(size)
    return 0.5f * x * (z < 0.0f ? rest : 2.0f - rest);
}

// The tanh form: 0.5 (1 + tanh u) is the logistic function of 2u.
inline Vec gelu_tanh(Vec x) {
    const Vec u = 0.79788456f * fused(0.044715f * x * x, x, x);
    return x / (1.0f + exponential(-2.0f * u));
}

}  // namespace nanogpt
