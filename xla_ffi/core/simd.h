// A vector of 16 floats (one 4x4 block of pixels) and its mask, for the instruction set this file is compiled for.
//
// Everything above the native operations is written once. Each instruction set has its own namespace, because the same
// source is compiled several times into one module and inline functions of the same name would be merged by the linker.
#ifndef JAXSPLAT_CORE_SIMD_H_
#define JAXSPLAT_CORE_SIMD_H_

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define JAXSPLAT_ISA avx512
#include <immintrin.h>
#elif defined(__AVX2__) && defined(__FMA__)
#define JAXSPLAT_ISA avx2
#include <immintrin.h>
#else
#define JAXSPLAT_ISA baseline
#endif

namespace jaxsplat::JAXSPLAT_ISA {

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

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
  static F Scale(F a, F n) { return _mm512_scalef_ps(a, n); }
  static M LessEqual(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  static M Less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M And(M a, M b) { return a & b; }
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
  // a 2^n for an integral n and a result that is a normal number.
  static F Scale(F a, F n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
  }
  static M LessEqual(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
  static M Less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M And(M a, M b) { return _mm256_and_ps(a, b); }
  static uint32_t Bits(M m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }
  static F Select(M m, F a, F b) { return _mm256_blendv_ps(b, a, m); }
  static F Keep(M m, F a) { return _mm256_and_ps(m, a); }
  static void SumFour(F a, F b, F c, F d, float* out) {
    const F ab = Add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const F cd = Add(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const F all = Add(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
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
  static F Scale(F a, F n) {
    return reinterpret_cast<F>(reinterpret_cast<M>(a) + (__builtin_convertvector(n, M) << 23));
  }
  static M LessEqual(F a, F b) { return a <= b; }
  static M Less(F a, F b) { return a < b; }
  static M And(M a, M b) { return a & b; }
  static uint32_t Bits(M m) { return (m[0] & 1u) | (m[1] & 2u) | (m[2] & 4u) | (m[3] & 8u); }
  static F Select(M m, F a, F b) {
    return reinterpret_cast<F>((reinterpret_cast<M>(a) & m) | (reinterpret_cast<M>(b) & ~m));
  }
  static F Keep(M m, F a) { return reinterpret_cast<F>(reinterpret_cast<M>(a) & m); }
  static void SumFour(F a, F b, F c, F d, float* out) {
    const F all[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) out[i] = (all[i][0] + all[i][1]) + (all[i][2] + all[i][3]);
  }
};

#endif

// The kernels keep many vectors in registers: that takes inlining all the way, and members rather than arrays.
#define JAXSPLAT_INLINE inline __attribute__((always_inline))

inline constexpr int kParts = 16 / Native::kLanes;

// As many native vectors or masks as make sixteen lanes. Copied member by member: GCC moves a trivially copied struct
// of vectors through memory, sixteen bytes at a time.
template <class T, int kCount>
struct Parts {
  Parts<T, kCount / 2> low, high;

  Parts() = default;
  JAXSPLAT_INLINE Parts(const Parts<T, kCount / 2>& l, const Parts<T, kCount / 2>& h) : low(l), high(h) {}
  JAXSPLAT_INLINE Parts(const Parts& other) : low(other.low), high(other.high) {}
  JAXSPLAT_INLINE Parts& operator=(const Parts& other) {
    low = other.low;
    high = other.high;
    return *this;
  }
};
template <class T>
struct Parts<T, 1> {
  T value;

  Parts() = default;
  JAXSPLAT_INLINE Parts(const T& v) : value(v) {}
  JAXSPLAT_INLINE Parts(const Parts& other) : value(other.value) {}
  JAXSPLAT_INLINE Parts& operator=(const Parts& other) {
    value = other.value;
    return *this;
  }
};

// f of the native vectors of all arguments.
template <class Result, int kCount, class F, class... P>
JAXSPLAT_INLINE Parts<Result, kCount> Map(const F& f, const P&... parts) {
  if constexpr (kCount == 1) {
    return {f(parts.value...)};
  } else {
    return {Map<Result, kCount / 2>(f, parts.low...), Map<Result, kCount / 2>(f, parts.high...)};
  }
}
// Native vectors made by f(first lane).
template <int kCount, class F>
JAXSPLAT_INLINE Parts<Native::F, kCount> Make(const F& f, int lane = 0) {
  if constexpr (kCount == 1) {
    return {f(lane)};
  } else {
    return {Make<kCount / 2>(f, lane), Make<kCount / 2>(f, lane + kCount / 2 * Native::kLanes)};
  }
}
template <class T, int kCount, class F>
JAXSPLAT_INLINE void ForEach(const Parts<T, kCount>& parts, const F& f, int lane = 0) {
  if constexpr (kCount == 1) {
    f(parts.value, lane);
  } else {
    ForEach(parts.low, f, lane);
    ForEach(parts.high, f, lane + kCount / 2 * Native::kLanes);
  }
}

struct Mask {
  Parts<Native::M, kParts> parts;
};

struct Vec {
  Parts<Native::F, kParts> parts;

  Vec() = default;
  JAXSPLAT_INLINE explicit Vec(const Parts<Native::F, kParts>& p) : parts(p) {}
  JAXSPLAT_INLINE explicit Vec(float a) {
    const Native::F v = Native::Set(a);
    parts = Make<kParts>([&](int) { return v; });
  }
  static JAXSPLAT_INLINE Vec Load(const float* p) {
    return Vec(Make<kParts>([&](int lane) { return Native::Load(p + lane); }));
  }
  static JAXSPLAT_INLINE Vec Gather(const float* p, const int32_t* index) {
    return Vec(Make<kParts>([&](int lane) { return Native::Gather(p, index + lane); }));
  }
  JAXSPLAT_INLINE void Store(float* p) const {
    ForEach(parts, [&](Native::F v, int lane) { Native::Store(p + lane, v); });
  }
};

#define JAXSPLAT_UNARY(Name, Native_)                                                    \
  JAXSPLAT_INLINE Vec Name(const Vec& a) {                                               \
    return Vec(Map<Native::F, kParts>([](Native::F x) { return Native_(x); }, a.parts)); \
  }
#define JAXSPLAT_BINARY(Name, Native_)                                                                            \
  JAXSPLAT_INLINE Vec Name(const Vec& a, const Vec& b) {                                                          \
    return Vec(Map<Native::F, kParts>([](Native::F x, Native::F y) { return Native_(x, y); }, a.parts, b.parts)); \
  }
#define JAXSPLAT_COMPARE(Name, Native_)                                                                        \
  JAXSPLAT_INLINE Mask Name(const Vec& a, const Vec& b) {                                                      \
    return {Map<Native::M, kParts>([](Native::F x, Native::F y) { return Native_(x, y); }, a.parts, b.parts)}; \
  }
#define JAXSPLAT_TERNARY(Name, Native_)                                                                                \
  JAXSPLAT_INLINE Vec Name(const Vec& a, const Vec& b, const Vec& c) {                                                 \
    return Vec(Map<Native::F, kParts>([](Native::F x, Native::F y, Native::F z) { return Native_(x, y, z); }, a.parts, \
                                      b.parts, c.parts));                                                              \
  }

JAXSPLAT_UNARY(Sqrt, Native::Sqrt)
JAXSPLAT_UNARY(Abs, Native::Abs)
JAXSPLAT_UNARY(Round, Native::Round)
JAXSPLAT_UNARY(Reciprocal, Native::Reciprocal)
JAXSPLAT_BINARY(operator+, Native::Add)
JAXSPLAT_BINARY(operator-, Native::Sub)
JAXSPLAT_BINARY(operator*, Native::Mul)
JAXSPLAT_BINARY(operator/, Native::Div)
JAXSPLAT_BINARY(Min, Native::Min)
JAXSPLAT_BINARY(Max, Native::Max)
JAXSPLAT_BINARY(Scale, Native::Scale)
JAXSPLAT_COMPARE(operator<=, Native::LessEqual)
JAXSPLAT_COMPARE(operator<, Native::Less)
JAXSPLAT_TERNARY(Fma, Native::Fma)    // a b + c
JAXSPLAT_TERNARY(Fnma, Native::Fnma)  // c - a b
JAXSPLAT_TERNARY(Fnms, Native::Fnms)  // -a b - c

#undef JAXSPLAT_UNARY
#undef JAXSPLAT_BINARY
#undef JAXSPLAT_COMPARE
#undef JAXSPLAT_TERNARY

JAXSPLAT_INLINE Mask operator&(const Mask& a, const Mask& b) {
  return {Map<Native::M, kParts>([](Native::M x, Native::M y) { return Native::And(x, y); }, a.parts, b.parts)};
}
JAXSPLAT_INLINE uint32_t Bits(const Mask& m) {
  uint32_t bits = 0;
  ForEach(m.parts, [&](Native::M part, int lane) { bits |= Native::Bits(part) << lane; });
  return bits;
}
JAXSPLAT_INLINE bool Any(const Mask& m) { return Bits(m) != 0; }
JAXSPLAT_INLINE Vec Select(const Mask& m, const Vec& a, const Vec& b) {
  return Vec(Map<Native::F, kParts>([](Native::M x, Native::F y, Native::F z) { return Native::Select(x, y, z); },
                                    m.parts, a.parts, b.parts));
}
// a where the mask is set, else 0.
JAXSPLAT_INLINE Vec Keep(const Mask& m, const Vec& a) {
  return Vec(Map<Native::F, kParts>([](Native::M x, Native::F y) { return Native::Keep(x, y); }, m.parts, a.parts));
}

// The same names for plain floats, so that the mathematics can be written once for both.
inline float Sqrt(float a) { return __builtin_sqrtf(a); }
inline float Min(float a, float b) { return a < b ? a : b; }
inline float Max(float a, float b) { return a > b ? a : b; }

// 2^x for -126 <= x <= 0, relative error 1.9e-7, exact at 0. A minimax polynomial of degree 5 on [-1/2, 1/2].
JAXSPLAT_INLINE Vec Exp2(const Vec& x) {
  const Vec n = Round(x);
  const Vec f = x - n;
  Vec p = Fma(f, Vec(0.001326472731307149f), Vec(0.009671512991189957f));
  p = Fma(f, p, Vec(0.05550733581185341f));
  p = Fma(f, p, Vec(0.24022242426872253f));
  p = Fma(f, p, Vec(0.6931470036506653f));
  p = Fma(f, p, Vec(1.0f));
  return Scale(p, n);
}

// log2(m) + exponent for m in [1, 2), error about one unit in the last place: the series of the inverse hyperbolic
// tangent.
JAXSPLAT_INLINE Vec Log2(const Vec& mantissa, const Vec& exponent) {
  const Mask upper = Vec(1.41421356f) < mantissa;
  const Vec m = Select(upper, Vec(0.5f) * mantissa, mantissa);
  const Vec n = Select(upper, exponent + Vec(1.0f), exponent);
  const Vec s = (m - Vec(1.0f)) / (m + Vec(1.0f)), s2 = s * s;
  Vec p = Fma(s2, Vec(0.320598898f), Vec(0.412198585f));
  p = Fma(s2, p, Vec(0.577078016f));
  p = Fma(s2, p, Vec(0.961796694f));
  p = Fma(s2, p, Vec(2.88539008f));
  return Fma(s, p, n);
}

// Sum of the native vectors.
template <int kCount>
JAXSPLAT_INLINE Native::F Fold(const Parts<Native::F, kCount>& parts) {
  if constexpr (kCount == 1) {
    return parts.value;
  } else {
    return Native::Add(Fold(parts.low), Fold(parts.high));
  }
}

// out[i] = sum of the lanes of the i-th argument.
JAXSPLAT_INLINE void SumFour(const Vec& a, const Vec& b, const Vec& c, const Vec& d, float* out) {
  Native::SumFour(Fold(a.parts), Fold(b.parts), Fold(c.parts), Fold(d.parts), out);
}

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CORE_SIMD_H_
