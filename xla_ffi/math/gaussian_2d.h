// A Gaussian on the screen: prepared values, evaluation at pixels, extents, and the gradient from sums over pixels.
//
// The quadratic form is kept as a Cholesky factor, scaled so that the falloff is a power of two:
//   q = (l11 dx + l21 dy)^2 + (l22 dy)^2 = log2(e) / 2 (a dx^2 + 2 b dx dy + c dy^2),  alpha = opacity 2^-q.
// A sum of squares cannot become negative, and keeps its digits for long thin splats where the expanded form cancels.
#ifndef JAXSPLAT_MATH_GAUSSIAN_2D_H_
#define JAXSPLAT_MATH_GAUSSIAN_2D_H_

#include <cstdint>
#include <cstring>

#include "core/simd.h"

namespace jaxsplat {

// Channels that are stored in the splat itself; more are read from the array of colors.
inline constexpr int kInlineChannels = 4;

// One cache line.
struct alignas(64) Gaussian2d {
  float x, y;           // centre in pixels
  float l11, l21, l22;  // Cholesky factor
  float floor;          // -log2(opacity / alpha_min): where -q falls below it, alpha is under the cut-off
  float opacity;
  int32_t id;                    // row in the arrays of the caller
  float color[kInlineChannels];  // the first channels
  float half_height,
      shear_y;           // the ellipse q = -floor: half its height; |dy| of its leftmost and rightmost points, signed
  float inv_l11, level;  // 1 / l11; -floor, widened for rounding
};
static_assert(sizeof(Gaussian2d) == 64);
inline constexpr int kGaussianStride = sizeof(Gaussian2d) / sizeof(float);

// Makes it touch every tile and block.
JAXSPLAT_HD inline void SetEverywhere(Gaussian2d* g) {
  constexpr float kFar = 1e18f;
  g->x = g->y = g->l21 = g->l22 = g->shear_y = 0;
  g->half_height = g->inv_l11 = kFar;
  g->level = 1;
}

// What the pixels say about one splat: sums of m = alpha dL/dalpha, of its moments about the mean, and of |dL/dmean|.
struct Moments2d {
  float m, x, y, xx, xy, yy, abs_x, abs_y;
};

struct GaussianGradient2d {
  float mean[2], conic[3], opacity;
};

// d alpha / d sigma = -alpha, with sigma = (a dx^2 + c dy^2) / 2 + b dx dy and (dx, dy) = pixel - mean.
JAXSPLAT_HD inline GaussianGradient2d EvaluateVjp(const Moments2d& s, const float* conic, float opacity) {
  return {{conic[0] * s.x + conic[1] * s.y, conic[1] * s.x + conic[2] * s.y},
          {-0.5f * s.xx, -s.xy, -0.5f * s.yy},
          s.m / opacity};
}

// What the geometry of one splat is prepared from.
struct GaussianFields2d {
  float x, y, a, b;
  float schur;  // c - b^2 / a
  float opacity;
};

namespace JAXSPLAT_ISA {

JAXSPLAT_INLINE GaussianFields2d FieldsOf(const float* mean, const float* conic, float opacity) {
  // In double, where the products are exact: the difference keeps its digits for long thin splats.
  const double a = conic[0], b = conic[1];
  return {mean[0], mean[1], conic[0], conic[1], static_cast<float>((a * conic[2] - b * b) / a), opacity};
}

// A splat that hits no pixel and touches no tile.
JAXSPLAT_INLINE void SetNothing(Gaussian2d* g) {
  g->x = g->y = g->l11 = g->l21 = g->shear_y = g->inv_l11 = g->level = g->opacity = 0;
  g->l22 = 1;
  g->floor = 1;  // above every -q
  g->half_height = -1;
}

// Copies the channels that are stored in the splat. Returns whether all of its channels are finite.
JAXSPLAT_INLINE bool SetColor(const float* color, int64_t channels, Gaussian2d* g) {
  const int64_t inline_channels = channels <= kInlineChannels ? channels : 0;
  for (int64_t c = 0; c < kInlineChannels; ++c) g->color[c] = c < inline_channels ? color[c] : 0.0f;
  float not_finite = 0;  // becomes NaN
  for (int64_t c = 0; c < channels; ++c) not_finite += color[c] * 0.0f;
  return not_finite == 0;
}

// The geometry of a vector of splats, as fields of Gaussian2d.
struct Geometry2d {
  Vec x, y, l11, l21, l22, floor, opacity, half_height, shear_y, inv_l11, level;
  Mask drawn;  // not so: transparent, not finite, or not positive definite
};

// a and b are entries of the conic, schur is c - b^2 / a, and log2_ratio is log2(opacity / alpha_min).
JAXSPLAT_INLINE Geometry2d Prepare(const Vec& x, const Vec& y, const Vec& a, const Vec& b, const Vec& schur,
                                   const Vec& opacity, const Vec& alpha_min, const Vec& log2_ratio) {
  const Vec half_log2_e(0.72134752f), zero(0.0f);
  Geometry2d g;
  g.x = x;
  g.y = y;
  g.opacity = opacity;
  g.l11 = Sqrt(half_log2_e * a);
  g.inv_l11 = Vec(1.0f) / g.l11;
  g.l21 = half_log2_e * b * g.inv_l11;
  g.l22 = Sqrt(half_log2_e * schur);
  // Exp2 holds down to 2^-126.
  const Vec cut = Min(Max(log2_ratio, zero), Vec(125.0f));
  g.floor = zero - cut;
  g.level = Fma(cut, Vec(1.0f + 1e-5f), Vec(1e-6f));
  g.half_height = Sqrt(g.level) / g.l22;
  const Vec shear = Max(Min(g.l21 / g.l22, Vec(1e18f)), Vec(-1e18f));
  g.shear_y = g.half_height * shear / Sqrt(Fma(shear, shear, Vec(1.0f)));
  const Vec sum = Abs(x) + Abs(y) + g.l11 + Abs(g.l21) + g.half_height + g.inv_l11;
  const Vec largest(3.4028235e38f);
  g.drawn = (alpha_min <= opacity) & (opacity <= largest) & (zero < a) & (zero < g.l22) & (sum < largest);
  return g;
}

struct Evaluation2d {
  Vec dx, dy;
  Vec minus_q;
  Mask hit;  // alpha is not under the cut-off
};

JAXSPLAT_INLINE Evaluation2d Evaluate(const Gaussian2d& g, const Vec& x, const Vec& y) {
  Evaluation2d e;
  e.dx = x - Vec(g.x);
  e.dy = y - Vec(g.y);
  const Vec u = Fma(Vec(g.l21), e.dy, Vec(g.l11) * e.dx);
  const Vec v = Vec(g.l22) * e.dy;
  const Vec minus_q = Fnms(u, u, v * v);
  // Compared before the exponential, so that its accuracy never decides which splats count.
  e.hit = Vec(g.floor) <= minus_q;
  e.minus_q = minus_q;
  return e;
}

// Horizontal reach of the ellipse over the band of rows dy in [y0, y1], relative to its centre; empty if left > right.
template <class T>
JAXSPLAT_INLINE void BandExtent(const T& half_height, const T& shear_y, const T& l21, const T& l22, const T& inv_l11,
                                const T& level, const T& y0, const T& y1, T* left, T* right) {
  const T low = Max(y0, T(0.0f) - half_height), high = Min(y1, half_height);
  const T yr = Min(Max(T(0.0f) - shear_y, low), high), yl = Min(Max(shear_y, low), high);
  const T vr = l22 * yr, vl = l22 * yl;
  *right = (Sqrt(Max(T(0.0f), level - vr * vr)) - l21 * yr) * inv_l11;
  *left = (T(0.0f) - Sqrt(Max(T(0.0f), level - vl * vl)) - l21 * yl) * inv_l11;
}

}  // namespace JAXSPLAT_ISA
}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_GAUSSIAN_2D_H_
