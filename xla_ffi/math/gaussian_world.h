// A Gaussian in the world, evaluated along rays: prepared values, evaluation, and the gradient from sums over pixels.
//
// W = S^-1 R^T takes a splat to its canonical space, where it is the unit ball. With g = W (origin - mean) and
// a = W direction, the ray comes closest to the mean at t = -(g . a) / |a|^2, in p = g + t a, and
//   alpha = opacity exp(-|p|^2 / 2) where t > 0,  |p|^2 = |g x a|^2 / |a|^2.
// The canonical space is turned so that the anchor, an origin that the rays share or are near, lies at (0, 0,
// -distance). From there g x a = distance (a2, -a1, 0): the distance to the splat, large against its size, does not
// cancel.
#ifndef JAXSPLAT_MATH_GAUSSIAN_WORLD_H_
#define JAXSPLAT_MATH_GAUSSIAN_WORLD_H_

#include <cmath>
#include <cstddef>

#include "core/simd.h"

namespace jaxsplat {

// One cache line.
struct alignas(64) GaussianWorld {
  float a[3][3];    // directions to the turned canonical space
  float distance;   // of the anchor, in the canonical space
  float normal[3];  // of unit length, in the world

  // One that cannot be drawn has no distance.
  static GaussianWorld NotDrawn() {
    GaussianWorld g{};
    g.distance = -1;
    return g;
  }
  bool drawn() const { return distance >= 0; }
};
static_assert(sizeof(GaussianWorld) == 64);

// What the pixels say about one splat, in the turned canonical space: with m = alpha dL/dalpha and k = dL/dt / |a|^2,
// the sums of m, of v = m p + k a, of the symmetric matrix v p^T + k p a^T, and of dL/dnormal.
struct MomentsWorld {
  float m, v[3], xx, xy, xz, yy, yz, zz, unused[2];
  float normal[3], unused_too;  // only where distances and normals are asked for
};
inline constexpr int kHitMomentSlots = sizeof(MomentsWorld) / sizeof(float);
inline constexpr int kWorldMomentSlots = offsetof(MomentsWorld, normal) / sizeof(float);

struct WorldGaussianGradient {
  double mean[3], quat[4], scale[3], opacity;
};

// The canonical space of one splat, in double: its gradients are differences of large numbers for flat splats.
struct CanonicalSpace {
  double quat[4], length, inverse_scale[3];  // of unit length; the length it had
  double turn[3][3], a[3][3], distance;
  bool drawn;  // not so: a value that is not finite, no rotation, a scale of zero, or the anchor at the mean

  JAXSPLAT_HD CanonicalSpace(const float* mean, const float* rotation, const float* scale, const float* anchor) {
    // Beyond these, products of three overflow in float.
    constexpr double kSmallest = 1e-12, kLargest = 1e12;
    length = 0;
    for (int k = 0; k < 4; ++k) length += static_cast<double>(rotation[k]) * rotation[k];
    length = std::sqrt(length);
    for (int k = 0; k < 4; ++k) quat[k] = rotation[k] / length;
    const double w = quat[0], x = quat[1], y = quat[2], z = quat[3];
    const double r[3][3] = {{1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)},
                            {2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)},
                            {2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)}};
    double g[3], squared = 0;
    for (int i = 0; i < 3; ++i) {
      inverse_scale[i] = 1.0 / scale[i];
      g[i] = 0;
      for (int k = 0; k < 3; ++k) g[i] += r[k][i] * (static_cast<double>(anchor[k]) - mean[k]);
      g[i] *= inverse_scale[i];
      squared += g[i] * g[i];
    }
    distance = std::sqrt(squared);
    // An orthonormal basis whose last vector points from the anchor to the mean (Duff et al., 2017).
    const double nx = -g[0] / distance, ny = -g[1] / distance, nz = -g[2] / distance;
    const double sign = std::copysign(1.0, nz), c = -1 / (sign + nz), d = nx * ny * c;
    const double basis[3][3] = {
        {1 + sign * nx * nx * c, sign * d, -sign * nx}, {d, sign + ny * ny * c, -ny}, {nx, ny, nz}};
    double sum = distance;
    drawn = length > kSmallest && distance > 0;
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        turn[i][j] = basis[i][j];
        a[i][j] = 0;
        for (int k = 0; k < 3; ++k) a[i][j] += basis[i][k] * inverse_scale[k] * r[j][k];
        sum += std::fabs(a[i][j]);
      }
    }
    for (double s : inverse_scale) drawn = drawn && std::fabs(s) > kSmallest;
    drawn = drawn && sum < kLargest;  // false with NaN
  }
};

// dL/dmean = A^T v, and the sum over the rays of dL/dW is -M W^-T with the symmetric matrix M of the moments. So
// dL/ds_k = M_kk / s_k, and for a small rotation about a splat's own axes dL is M_ij times a difference of ratios of
// scales, exactly zero for a ball: nothing cancels.
JAXSPLAT_HD inline WorldGaussianGradient EvaluateVjp(const MomentsWorld& s, const CanonicalSpace& space,
                                                     const float* scale, float opacity) {
  WorldGaussianGradient result;
  result.opacity = static_cast<double>(s.m) / opacity;
  for (int j = 0; j < 3; ++j) {
    result.mean[j] = space.a[0][j] * s.v[0] + space.a[1][j] * s.v[1] + space.a[2][j] * s.v[2];
  }
  const double turned[3][3] = {{s.xx, s.xy, s.xz}, {s.xy, s.yy, s.yz}, {s.xz, s.yz, s.zz}};
  double m[3][3];
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      m[i][j] = 0;
      for (int k = 0; k < 3; ++k) {
        for (int l = 0; l < 3; ++l) m[i][j] += space.turn[k][i] * turned[k][l] * space.turn[l][j];
      }
    }
    result.scale[i] = m[i][i] * space.inverse_scale[i];
  }
  const auto about = [&](int i, int j) {
    return 2 * m[i][j] * (scale[i] * space.inverse_scale[j] - scale[j] * space.inverse_scale[i]) / space.length;
  };
  const double x = about(1, 2), y = about(2, 0), z = about(0, 1);
  const double* const q = space.quat;
  result.quat[0] = -(q[1] * x + q[2] * y + q[3] * z);
  result.quat[1] = q[0] * x + q[2] * z - q[3] * y;
  result.quat[2] = q[0] * y + q[3] * x - q[1] * z;
  result.quat[3] = q[0] * z + q[1] * y - q[2] * x;
  return result;
}

namespace JAXSPLAT_ISA {

// Rays of a group of pixels; origins are relative to the anchor, and used only where they differ from it (moving).
struct Rays {
  Vec direction[3], origin[3];
};

// A ray in the turned canonical space of a splat.
struct CanonicalRay {
  Vec a[3];       // direction
  Vec moment[3];  // g x a
  Vec front;      // -(g . a)
  Vec inverse;    // 1 / |a|^2
};

JAXSPLAT_INLINE Vec Along(const float* row, const Vec* vector) {
  return Fma(Vec(row[0]), vector[0], Fma(Vec(row[1]), vector[1], Vec(row[2]) * vector[2]));
}
JAXSPLAT_INLINE Vec Dot(const Vec* a, const Vec* b) { return Fma(a[0], b[0], Fma(a[1], b[1], a[2] * b[2])); }
// a b - c d.
JAXSPLAT_INLINE Vec Difference(const Vec& a, const Vec& b, const Vec& c, const Vec& d) { return Fnma(c, d, a * b); }

template <bool kMoving>
JAXSPLAT_INLINE CanonicalRay Canonical(const GaussianWorld& s, const Rays& rays) {
  CanonicalRay ray;
  for (int i = 0; i < 3; ++i) ray.a[i] = Along(s.a[i], rays.direction);
  ray.inverse = Reciprocal(Dot(ray.a, ray.a));
  const Vec distance(s.distance), zero(0.0f);
  if constexpr (kMoving) {
    Vec g[3];
    for (int i = 0; i < 3; ++i) g[i] = Along(s.a[i], rays.origin);
    g[2] = g[2] - distance;
    ray.moment[0] = Difference(g[1], ray.a[2], g[2], ray.a[1]);
    ray.moment[1] = Difference(g[2], ray.a[0], g[0], ray.a[2]);
    ray.moment[2] = Difference(g[0], ray.a[1], g[1], ray.a[0]);
    ray.front = zero - Dot(g, ray.a);
  } else {
    ray.moment[0] = distance * ray.a[1];
    ray.moment[1] = zero - distance * ray.a[0];
    ray.moment[2] = zero;
    ray.front = distance * ray.a[2];
  }
  return ray;
}

// -q with q = log2(e) |p|^2 / 2, so that alpha = opacity 2^-q.
JAXSPLAT_INLINE Vec MinusQ(const CanonicalRay& ray) {
  return Vec(-0.72134752f) * Dot(ray.moment, ray.moment) * ray.inverse;
}

// p.
JAXSPLAT_INLINE void ClosestPoint(const CanonicalRay& ray, Vec* p) {
  // Scaled first: the product of all three may overflow.
  const Vec x = ray.inverse * ray.moment[0], y = ray.inverse * ray.moment[1], z = ray.inverse * ray.moment[2];
  p[0] = Difference(ray.a[1], z, ray.a[2], y);
  p[1] = Difference(ray.a[2], x, ray.a[0], z);
  p[2] = Difference(ray.a[0], y, ray.a[1], x);
}

}  // namespace JAXSPLAT_ISA
}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_GAUSSIAN_WORLD_H_
