// Vectors of floats and their masks, written once on top of the native operations of each instruction set.
#ifndef JAXSPLAT_CORE_SIMD_H_
#define JAXSPLAT_CORE_SIMD_H_

#include <cstdint>

#include "core/host_device.h"
#include "core/simd_native.h"

namespace jaxsplat::JAXSPLAT_ISA {

// The kernels keep many vectors in registers: that takes inlining all the way.
#define JAXSPLAT_INLINE JAXSPLAT_HD inline __attribute__((always_inline))

inline constexpr int kLanes = Native::kLanes;

struct Mask {
  Native::M v;
};

// Copied by hand: GCC moves a trivially copied struct of a vector through memory.
struct Vec {
  Native::F v;

#if defined(JAXSPLAT_POISON)  // in tests, so that what was never set shows
  JAXSPLAT_INLINE Vec() : v(NAN) {}
#else
  Vec() = default;
#endif
#if defined(JAXSPLAT_DEVICE)
  // By value: the address of a constant is one of the host.
  JAXSPLAT_INLINE explicit Vec(float a) : v(a) {}
#else
  JAXSPLAT_INLINE explicit Vec(const Native::F& a) : v(a) {}
  JAXSPLAT_INLINE explicit Vec(float a) : v(Native::Set(a)) {}
#endif
  JAXSPLAT_INLINE Vec(const Vec& other) : v(other.v) {}
  JAXSPLAT_INLINE Vec& operator=(const Vec& other) {
    v = other.v;
    return *this;
  }
  static JAXSPLAT_INLINE Vec Load(const float* p) { return Vec(Native::Load(p)); }
  static JAXSPLAT_INLINE Vec Gather(const float* p, const int32_t* index) { return Vec(Native::Gather(p, index)); }
  JAXSPLAT_INLINE void Store(float* p) const { Native::Store(p, v); }
};

JAXSPLAT_INLINE Vec operator+(const Vec& a, const Vec& b) { return Vec(Native::Add(a.v, b.v)); }
JAXSPLAT_INLINE Vec operator-(const Vec& a, const Vec& b) { return Vec(Native::Sub(a.v, b.v)); }
JAXSPLAT_INLINE Vec operator*(const Vec& a, const Vec& b) { return Vec(Native::Mul(a.v, b.v)); }
JAXSPLAT_INLINE Vec operator/(const Vec& a, const Vec& b) { return Vec(Native::Div(a.v, b.v)); }
JAXSPLAT_INLINE Vec Min(const Vec& a, const Vec& b) { return Vec(Native::Min(a.v, b.v)); }
JAXSPLAT_INLINE Vec Max(const Vec& a, const Vec& b) { return Vec(Native::Max(a.v, b.v)); }
JAXSPLAT_INLINE Vec Scale(const Vec& a, const Vec& n) { return Vec(Native::Scale(a.v, n.v)); }
JAXSPLAT_INLINE Vec Sqrt(const Vec& a) { return Vec(Native::Sqrt(a.v)); }
JAXSPLAT_INLINE Vec Abs(const Vec& a) { return Vec(Native::Abs(a.v)); }
JAXSPLAT_INLINE Vec Round(const Vec& a) { return Vec(Native::Round(a.v)); }
JAXSPLAT_INLINE Vec Floor(const Vec& a) { return Vec(Native::Floor(a.v)); }
JAXSPLAT_INLINE Vec Reciprocal(const Vec& a) { return Vec(Native::Reciprocal(a.v)); }
// a b + c, c - a b, and -a b - c.
JAXSPLAT_INLINE Vec Fma(const Vec& a, const Vec& b, const Vec& c) { return Vec(Native::Fma(a.v, b.v, c.v)); }
JAXSPLAT_INLINE Vec Fnma(const Vec& a, const Vec& b, const Vec& c) { return Vec(Native::Fnma(a.v, b.v, c.v)); }
JAXSPLAT_INLINE Vec Fnms(const Vec& a, const Vec& b, const Vec& c) { return Vec(Native::Fnms(a.v, b.v, c.v)); }

JAXSPLAT_INLINE Mask operator<=(const Vec& a, const Vec& b) { return {Native::LessEqual(a.v, b.v)}; }
JAXSPLAT_INLINE Mask operator<(const Vec& a, const Vec& b) { return {Native::Less(a.v, b.v)}; }
JAXSPLAT_INLINE Mask operator&(const Mask& a, const Mask& b) { return {Native::And(a.v, b.v)}; }
JAXSPLAT_INLINE Mask operator|(const Mask& a, const Mask& b) { return {Native::Or(a.v, b.v)}; }
JAXSPLAT_INLINE uint32_t Bits(const Mask& m) { return Native::Bits(m.v); }
JAXSPLAT_INLINE bool Any(const Mask& m) { return Bits(m) != 0; }
JAXSPLAT_INLINE Vec Select(const Mask& m, const Vec& a, const Vec& b) { return Vec(Native::Select(m.v, a.v, b.v)); }
// a where the mask is set, else 0.
JAXSPLAT_INLINE Vec Keep(const Mask& m, const Vec& a) { return Vec(Native::Keep(m.v, a.v)); }
// out[i] = sum of the lanes of the i-th argument.
JAXSPLAT_INLINE void SumFour(const Vec& a, const Vec& b, const Vec& c, const Vec& d, float* out) {
  Native::SumFour(a.v, b.v, c.v, d.v, out);
}

#if !defined(JAXSPLAT_DEVICE)
// Among each four lanes of four vectors, lane i of vector k becomes lane k of vector i.
JAXSPLAT_INLINE void TransposeFours(Vec* a) {
  const Vec low01(Native::LowPairs(a[0].v, a[1].v)), high01(Native::HighPairs(a[0].v, a[1].v));
  const Vec low23(Native::LowPairs(a[2].v, a[3].v)), high23(Native::HighPairs(a[2].v, a[3].v));
  a[0] = Vec(Native::LowHalves(low01.v, low23.v));
  a[1] = Vec(Native::HighHalves(low01.v, low23.v));
  a[2] = Vec(Native::LowHalves(high01.v, high23.v));
  a[3] = Vec(Native::HighHalves(high01.v, high23.v));
}
// out[k] = p[index[lane] + k] for k < 4, in half the time of four times Gather.
JAXSPLAT_INLINE void GatherFour(const float* p, const int32_t* index, Vec* out) {
  for (int i = 0; i < 4; ++i) out[i] = Vec(Native::LoadFours(p, index + i));
  TransposeFours(out);
}
// to[lane][k] = a[k] for k < 4. The vectors are changed.
JAXSPLAT_INLINE void ScatterFour(Vec* a, float* const* to) {
  TransposeFours(a);
  for (int i = 0; i < 4; ++i) Native::StoreFours(to + i, a[i].v);
}
#endif

// The same names for plain floats, so that the mathematics can be written once for both.
JAXSPLAT_INLINE float Sqrt(float a) { return __builtin_sqrtf(a); }
JAXSPLAT_INLINE float Floor(float a) { return __builtin_floorf(a); }
JAXSPLAT_INLINE float Select(bool m, float a, float b) { return m ? a : b; }
JAXSPLAT_INLINE float Min(float a, float b) { return a < b ? a : b; }
JAXSPLAT_INLINE float Max(float a, float b) { return a > b ? a : b; }

// Keeps the compiler from loading a value again for each use, which costs twice where it crosses a line of the cache.
JAXSPLAT_INLINE Vec InRegister(Vec a) {
#if defined(__x86_64__) && !defined(JAXSPLAT_DEVICE)
  asm("" : "+x"(a.v));
#endif
  return a;
}

// The first n lanes, n from 1 to all of them; the others are zeros, or are left alone.
JAXSPLAT_INLINE Vec LoadPart(const float* p, int64_t n) {
  if (n == kLanes) return Vec::Load(p);
  alignas(64) float lanes[kLanes] = {};
  std::memcpy(lanes, p, sizeof(float) * static_cast<size_t>(n));
  return Vec::Load(lanes);
}
JAXSPLAT_INLINE void StorePart(const Vec& a, float* p, int64_t n) {
  if (n == kLanes) return a.Store(p);
  alignas(64) float lanes[kLanes];
  a.Store(lanes);
  std::memcpy(p, lanes, sizeof(float) * static_cast<size_t>(n));
}

// 2^x for -126 <= x <= 0, relative error 1.9e-7, exact at 0. A minimax polynomial of degree 5 on [-1/2, 1/2].
#if defined(JAXSPLAT_DEVICE)
JAXSPLAT_INLINE Vec Exp2(const Vec& x) { return Vec(Native::Exp2(x.v)); }
#else
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
#endif

// The logarithm of a positive normal number, error about one unit in the last place: the series of the inverse
// hyperbolic tangent.
JAXSPLAT_INLINE Vec Log2(const Vec& a) {
  const Vec mantissa(Native::Mantissa(a.v)), exponent(Native::Exponent(a.v));
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

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CORE_SIMD_H_
