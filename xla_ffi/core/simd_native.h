// The native operations on a vector of floats as wide as the instruction set that this file is compiled for has them.
//
// Each instruction set has its own namespace, because the same source is compiled several times into one module and
// inline functions of the same name would be merged by the linker.
#ifndef JAXSPLAT_CORE_SIMD_NATIVE_H_
#define JAXSPLAT_CORE_SIMD_NATIVE_H_

#include <cstdint>
#include <cstring>

#include "core/host_device.h"

#if defined(JAXSPLAT_DEVICE)
#define JAXSPLAT_ISA device
#include <cmath>
#elif defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define JAXSPLAT_ISA avx512
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__)
#define JAXSPLAT_ISA avx2
#include <immintrin.h>
#else
#define JAXSPLAT_ISA baseline
#endif

namespace jaxsplat::JAXSPLAT_ISA {

#if defined(JAXSPLAT_DEVICE)

// One lane: a CUDA thread is what a lane is elsewhere. Rounded as the fused operations of AVX-512 are.
struct Native {
  using F = float;
  using M = bool;
  static constexpr int kLanes = 1;
  static JAXSPLAT_HD F Set(float a) { return a; }
  static JAXSPLAT_HD F Load(const float* p) { return *p; }
  static JAXSPLAT_HD void Store(float* p, F a) { *p = a; }
  static JAXSPLAT_HD F Gather(const float* p, const int32_t* index) { return p[*index]; }
  static JAXSPLAT_HD F Add(F a, F b) { return a + b; }
  static JAXSPLAT_HD F Sub(F a, F b) { return a - b; }
  static JAXSPLAT_HD F Mul(F a, F b) { return a * b; }
  static JAXSPLAT_HD F Div(F a, F b) { return a / b; }
  static JAXSPLAT_HD F Reciprocal(F a) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
#else
    return 1.0f / a;
#endif
  }
  static JAXSPLAT_HD F Fma(F a, F b, F c) { return fmaf(a, b, c); }
  static JAXSPLAT_HD F Fnma(F a, F b, F c) { return fmaf(-a, b, c); }
  static JAXSPLAT_HD F Fnms(F a, F b, F c) { return fmaf(-a, b, -c); }
  static JAXSPLAT_HD F Min(F a, F b) { return fminf(a, b); }
  static JAXSPLAT_HD F Max(F a, F b) { return fmaxf(a, b); }
  static JAXSPLAT_HD F Sqrt(F a) { return sqrtf(a); }
  static JAXSPLAT_HD F Abs(F a) { return fabsf(a); }
  static JAXSPLAT_HD F Round(F a) { return rintf(a); }
  static JAXSPLAT_HD F Floor(F a) { return floorf(a); }
  // The special-function unit is as accurate as the polynomial of the others, and takes one instruction.
  static JAXSPLAT_HD F Exp2(F a) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
#else
    return exp2f(a);
#endif
  }
  static JAXSPLAT_HD F Scale(F a, F n) { return a * Exp2(n); }
  static JAXSPLAT_HD F Mantissa(F a) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof(bits));
    bits = (bits & 0x7fffffu) | 0x3f800000u;
    memcpy(&a, &bits, sizeof(bits));
    return a;
  }
  static JAXSPLAT_HD F Exponent(F a) {
    uint32_t bits;
    memcpy(&bits, &a, sizeof(bits));
    return static_cast<F>(static_cast<int32_t>(bits >> 23) - 127);
  }
  static JAXSPLAT_HD M LessEqual(F a, F b) { return a <= b; }
  static JAXSPLAT_HD M Less(F a, F b) { return a < b; }
  static JAXSPLAT_HD M And(M a, M b) { return a && b; }
  static JAXSPLAT_HD M Or(M a, M b) { return a || b; }
  static JAXSPLAT_HD uint32_t Bits(M m) { return m ? 1 : 0; }
  static JAXSPLAT_HD F Select(M m, F a, F b) { return m ? a : b; }
  static JAXSPLAT_HD F Keep(M m, F a) { return m ? a : 0.0f; }
  static JAXSPLAT_HD void SumFour(F a, F b, F c, F d, float* out) {
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
  }
};

#elif defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

struct Native {
  using F = __m512;
  using M = __mmask16;
  static constexpr int kLanes = 16;
  static F Set(float a) { return _mm512_set1_ps(a); }
  static F Load(const float* p) { return _mm512_loadu_ps(p); }
  static void Store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F Gather(const float* p, const int32_t* index) { return _mm512_i32gather_ps(_mm512_loadu_si512(index), p, 4); }
  static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  // 1 / a to about one unit in the last place: an estimate and one Newton step.
  static F Reciprocal(F a) {
    const F r = _mm512_rcp14_ps(a);
    return Mul(r, Fnma(a, r, Set(2.0f)));
  }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F Fnms(F a, F b, F c) { return _mm512_fnmsub_ps(a, b, c); }
  static F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static F Sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F Abs(F a) { return _mm512_abs_ps(a); }
  static F Round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F Floor(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
  static F Scale(F a, F n) { return _mm512_scalef_ps(a, n); }
  // a = Mantissa(a) 2^Exponent(a), the mantissa in [1, 2), for a positive normal number.
  static F Mantissa(F a) { return _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src); }
  static F Exponent(F a) { return _mm512_getexp_ps(a); }
  static M LessEqual(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  static M Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M And(M a, M b) { return a & b; }
  static M Or(M a, M b) { return a | b; }
  static uint32_t Bits(M m) { return m; }
  static F Select(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
  static F Keep(M m, F a) { return _mm512_maskz_mov_ps(m, a); }
  // out[i] = sum of the lanes of the i-th argument.
  static void SumFour(F a, F b, F c, F d, float* out) {
    const F ab = Add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd = Add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const F all = Add(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
  }
  // Each quarter holds four floats from p + index[4 quarter].
  static F LoadFours(const float* p, const int32_t* index) {
    F a = _mm512_castps128_ps512(_mm_loadu_ps(p + index[0]));
    a = _mm512_insertf32x4(a, _mm_loadu_ps(p + index[4]), 1);
    a = _mm512_insertf32x4(a, _mm_loadu_ps(p + index[8]), 2);
    return _mm512_insertf32x4(a, _mm_loadu_ps(p + index[12]), 3);
  }
  static void StoreFours(float* const* to, F a) {
    _mm_storeu_ps(to[0], _mm512_castps512_ps128(a));
    _mm_storeu_ps(to[4], _mm512_extractf32x4_ps(a, 1));
    _mm_storeu_ps(to[8], _mm512_extractf32x4_ps(a, 2));
    _mm_storeu_ps(to[12], _mm512_extractf32x4_ps(a, 3));
  }
  static F LowPairs(F a, F b) { return _mm512_unpacklo_ps(a, b); }
  static F HighPairs(F a, F b) { return _mm512_unpackhi_ps(a, b); }
  static F LowHalves(F a, F b) { return _mm512_shuffle_ps(a, b, 0x44); }
  static F HighHalves(F a, F b) { return _mm512_shuffle_ps(a, b, 0xee); }
};

#elif defined(__AVX2__) && defined(__FMA__)

struct Native {
  using F = __m256;
  using M = __m256;
  static constexpr int kLanes = 8;
  static F Set(float a) { return _mm256_set1_ps(a); }
  static F Load(const float* p) { return _mm256_loadu_ps(p); }
  static void Store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F Gather(const float* p, const int32_t* index) {
    return _mm256_i32gather_ps(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index)), 4);
  }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  // 1 / a to about one unit in the last place: an estimate and one Newton step.
  static F Reciprocal(F a) {
    const F r = _mm256_rcp_ps(a);
    return Mul(r, Fnma(a, r, Set(2.0f)));
  }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F Fnms(F a, F b, F c) { return _mm256_fnmsub_ps(a, b, c); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F Abs(F a) { return _mm256_andnot_ps(Set(-0.0f), a); }
  static F Round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F Floor(F a) { return _mm256_floor_ps(a); }
  // a 2^n for an integral n and a result that is a normal number.
  static F Scale(F a, F n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  static F Mantissa(F a) { return _mm256_or_ps(_mm256_and_ps(a, Bits(0x007fffff)), Bits(0x3f800000)); }
  static F Exponent(F a) {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(a), 23), _mm256_set1_epi32(127)));
  }
  static F Bits(int32_t bits) { return _mm256_castsi256_ps(_mm256_set1_epi32(bits)); }
  static M LessEqual(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
  static M Less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M And(M a, M b) { return _mm256_and_ps(a, b); }
  static M Or(M a, M b) { return _mm256_or_ps(a, b); }
  static uint32_t Bits(M m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }
  static F Select(M m, F a, F b) { return _mm256_blendv_ps(b, a, m); }
  static F Keep(M m, F a) { return _mm256_and_ps(m, a); }
  static void SumFour(F a, F b, F c, F d, float* out) {
    const F ab = Add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const F cd = Add(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const F all = Add(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
  static F LoadFours(const float* p, const int32_t* index) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p + index[0])), _mm_loadu_ps(p + index[4]), 1);
  }
  static void StoreFours(float* const* to, F a) {
    _mm_storeu_ps(to[0], _mm256_castps256_ps128(a));
    _mm_storeu_ps(to[4], _mm256_extractf128_ps(a, 1));
  }
  static F LowPairs(F a, F b) { return _mm256_unpacklo_ps(a, b); }
  static F HighPairs(F a, F b) { return _mm256_unpackhi_ps(a, b); }
  static F LowHalves(F a, F b) { return _mm256_shuffle_ps(a, b, 0x44); }
  static F HighHalves(F a, F b) { return _mm256_shuffle_ps(a, b, 0xee); }
};

#else

// Four lanes in the compiler's own vector type: SSE2, NEON and whatever else has 128-bit registers.
struct Native {
  typedef float F __attribute__((vector_size(16)));
  typedef int32_t M __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static F Set(float a) { return F{a, a, a, a}; }
  static F Load(const float* p) {
    F a;
    std::memcpy(&a, p, sizeof(a));
    return a;
  }
  static void Store(float* p, F a) { std::memcpy(p, &a, sizeof(a)); }
  static F Gather(const float* p, const int32_t* index) {
    return F{p[index[0]], p[index[1]], p[index[2]], p[index[3]]};
  }
  static F Add(F a, F b) { return a + b; }
  static F Sub(F a, F b) { return a - b; }
  static F Mul(F a, F b) { return a * b; }
  static F Div(F a, F b) { return a / b; }
  static F Reciprocal(F a) { return Set(1.0f) / a; }
  static F Fma(F a, F b, F c) { return a * b + c; }
  static F Fnma(F a, F b, F c) { return c - a * b; }
  static F Fnms(F a, F b, F c) { return -(a * b) - c; }
  static F Min(F a, F b) { return Select(Less(a, b), a, b); }
  static F Max(F a, F b) { return Select(Less(b, a), a, b); }
  static F Sqrt(F a) {
    return F{__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]), __builtin_sqrtf(a[3])};
  }
  static F Abs(F a) { return reinterpret_cast<F>(reinterpret_cast<M>(a) & 0x7fffffff); }
  // Adding 1.5 2^23 leaves the integer nearest to a small number in the low bits.
  static F Round(F a) { return (a + Set(12582912.0f)) - Set(12582912.0f); }
  static F Floor(F a) {
    return F{__builtin_floorf(a[0]), __builtin_floorf(a[1]), __builtin_floorf(a[2]), __builtin_floorf(a[3])};
  }
  static F Scale(F a, F n) {
    return reinterpret_cast<F>(reinterpret_cast<M>(a) + (__builtin_convertvector(n, M) << 23));
  }
  static F Mantissa(F a) { return reinterpret_cast<F>((reinterpret_cast<M>(a) & 0x7fffff) | 0x3f800000); }
  static F Exponent(F a) { return __builtin_convertvector((reinterpret_cast<M>(a) >> 23) - 127, F); }
  static M LessEqual(F a, F b) { return a <= b; }
  static M Less(F a, F b) { return a < b; }
  static M And(M a, M b) { return a & b; }
  static M Or(M a, M b) { return a | b; }
  static uint32_t Bits(M m) { return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u); }
  static F Select(M m, F a, F b) {
    return reinterpret_cast<F>((reinterpret_cast<M>(a) & m) | (reinterpret_cast<M>(b) & ~m));
  }
  static F Keep(M m, F a) { return reinterpret_cast<F>(reinterpret_cast<M>(a) & m); }
  static void SumFour(F a, F b, F c, F d, float* out) {
    const F all[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) out[i] = (all[i][0] + all[i][1]) + (all[i][2] + all[i][3]);
  }
  static F LoadFours(const float* p, const int32_t* index) { return Load(p + index[0]); }
  static void StoreFours(float* const* to, F a) { Store(to[0], a); }
  static F LowPairs(F a, F b) { return F{a[0], b[0], a[1], b[1]}; }
  static F HighPairs(F a, F b) { return F{a[2], b[2], a[3], b[3]}; }
  static F LowHalves(F a, F b) { return F{a[0], a[1], b[0], b[1]}; }
  static F HighHalves(F a, F b) { return F{a[2], a[3], b[2], b[3]}; }
};

#endif

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CORE_SIMD_NATIVE_H_
