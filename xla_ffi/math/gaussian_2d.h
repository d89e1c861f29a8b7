// A Gaussian on the screen: prepared values, evaluation at pixels, extents, and the gradient from sums over pixels.
//
// The quadratic form is kept as a Cholesky factor, scaled so that the falloff is a power of two:
//   q = (l11 dx + l21 dy)^2 + (l22 dy)^2 = log2(e) / 2 (a dx^2 + 2 b dx dy + c dy^2),  alpha = opacity 2^-q.
// A sum of squares cannot become negative, and keeps its digits for long thin splats where the expanded form cancels.
#ifndef JAXSPLAT_MATH_GAUSSIAN_2D_H_
#define JAXSPLAT_MATH_GAUSSIAN_2D_H_

#include <cmath>
#include <cstdint>

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

inline constexpr double kLog2E = 1.4426950408889634;

// Fills in the geometry. Returns false for a splat that is not drawn: transparent, not finite, or not positive
// definite.
inline bool Prepare(const float* mean, const float* conic, float opacity, double alpha_min, Gaussian2d* g) {
  const double a = conic[0], b = conic[1], c = conic[2];
  const double det = a * c - b * b;  // exact products: 24 + 24 bits
  if (!(opacity >= static_cast<float>(alpha_min)) || !(a > 0) || !(det > 0)) return false;
  const double l11 = std::sqrt(0.5 * kLog2E * a);
  const double l21 = 0.5 * kLog2E * b / l11;
  const double l22 = std::sqrt(0.5 * kLog2E * det / a);
  // Exp2 holds down to 2^-126.
  const double cut = std::fmin(std::fmax(std::log2(static_cast<double>(opacity) / alpha_min), 0.0), 125.0);
  const double level = cut * (1 + 1e-5) + 1e-6;
  const double reach = std::sqrt(level);
  g->x = mean[0];
  g->y = mean[1];
  g->l11 = static_cast<float>(l11);
  g->l21 = static_cast<float>(l21);
  g->l22 = static_cast<float>(l22);
  g->floor = static_cast<float>(-cut);
  g->opacity = opacity;
  g->half_height = static_cast<float>(reach / l22);
  g->shear_y = static_cast<float>(reach * l21 / (l22 * std::sqrt(l21 * l21 + l22 * l22)));
  g->inv_l11 = static_cast<float>(1 / l11);
  g->level = static_cast<float>(level);
  const float sum = g->x + g->y + g->l11 + g->l21 + g->half_height + g->inv_l11;
  return std::isfinite(sum) && g->l22 > 0 && std::isfinite(opacity);
}

// What one splat adds to the gradient at a set of pixels: sums of m = alpha dL/dalpha and of its moments.
struct Moments2d {
  float m, x, y, xx, xy, yy;
};

struct GaussianGradient2d {
  float mean[2], conic[3], opacity;
};

// d alpha / d sigma = -alpha, with sigma = (a dx^2 + c dy^2) / 2 + b dx dy and (dx, dy) = pixel - mean.
inline GaussianGradient2d EvaluateVjp(const Moments2d& s, const float* conic, float opacity) {
  return {{conic[0] * s.x + conic[1] * s.y, conic[1] * s.x + conic[2] * s.y},
          {-0.5f * s.xx, -s.xy, -0.5f * s.yy},
          s.m / opacity};
}

namespace JAXSPLAT_ISA {

struct Evaluation2d {
  Vec dx, dy;
  Vec minus_q;
  Mask hit;  // alpha is not under the cut-off
};

inline Evaluation2d Evaluate(const Gaussian2d& g, const Vec& x, const Vec& y) {
  Evaluation2d e;
  e.dx = x - Vec(g.x);
  e.dy = y - Vec(g.y);
  const Vec u = Fma(Vec(g.l21), e.dy, Vec(g.l11) * e.dx);
  const Vec v = Vec(g.l22) * e.dy;
  const Vec minus_q = Fnma(u, u, Vec(0.0f) - v * v);
  // Compared before the exponential, so that its accuracy never decides which splats count.
  e.hit = Vec(g.floor) <= minus_q;
  e.minus_q = minus_q;
  return e;
}

// Horizontal reach of the ellipse over the band of rows dy in [y0, y1], relative to its centre; empty if left > right.
template <class T>
inline void BandExtent(const T& half_height, const T& shear_y, const T& l21, const T& l22, const T& inv_l11,
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
