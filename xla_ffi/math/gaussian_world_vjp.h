// The backward pass of Gaussians along rays, pixel by pixel: what the moments of a splat and the gradients of a ray are
// summed from. A group is the pixels of a vector: it has the cotangents of their hits, VHit(k), and the gradients of
// their rays, VRay(k) and SetVRay(k, value).
#ifndef JAXSPLAT_MATH_GAUSSIAN_WORLD_VJP_H_
#define JAXSPLAT_MATH_GAUSSIAN_WORLD_VJP_H_

#include "core/simd.h"
#include "math/gaussian_world.h"

namespace jaxsplat::JAXSPLAT_ISA {

// 1 for a normal that faces the ray's origin, else -1.
JAXSPLAT_INLINE Vec Facing(const GaussianWorld& world, const Rays& rays) {
  return Select(Vec(0.0f) < Along(world.normal, rays.direction), Vec(-1.0f), Vec(1.0f));
}

struct WorldPoint {
  CanonicalRay ray;
  Vec distance, p[3];
  JAXSPLAT_INLINE explicit WorldPoint(const CanonicalRay& r) : ray(r), distance(r.front * r.inverse) {
    ClosestPoint(ray, p);
  }
};

// MomentsWorld, lane by lane.
template <bool kHits>
struct WorldSums {
  Vec m, v[3], xx, xy, xz, yy, yz, zz, normal[kHits ? 3 : 1];
  JAXSPLAT_INLINE WorldSums() {
    m = v[0] = v[1] = v[2] = xx = xy = xz = yy = yz = zz = Vec(0.0f);
    for (Vec& n : normal) n = Vec(0.0f);
  }

  // The hits' part of the linear form's value at one splat; sums the gradient of the normal.
  template <class Group>
  JAXSPLAT_INLINE Vec AddHits(const GaussianWorld& world, const Rays& rays, const WorldPoint& at, const Vec& weight,
                              const Group& group) {
    const Vec facing = Facing(world, rays);
    Vec along(0.0f);
    for (int k = 0; k < 3; ++k) {
      const Vec v_normal = group.VHit(kHits ? k + 1 : 0);
      along = Fma(Vec(world.normal[k]), v_normal, along);
      normal[kHits ? k : 0] = Fma(weight * facing, v_normal, normal[kHits ? k : 0]);
    }
    return Fma(at.distance, group.VHit(0), facing * along);
  }

  // `gradient` is alpha dL/dalpha. With `v_rays` also sums the gradients of the rays.
  template <class Group>
  JAXSPLAT_INLINE void Add(const GaussianWorld& world, const WorldPoint& at, const Vec& gradient, const Vec& weight,
                           bool v_rays, Group& group) {
    const Vec* const p = at.p;
    const Vec* const a = at.ray.a;
    Vec w[3], k;
    for (int i = 0; i < 3; ++i) w[i] = gradient * p[i];
    if constexpr (kHits) {
      k = weight * group.VHit(0) * at.ray.inverse;
      for (int i = 0; i < 3; ++i) w[i] = Fma(k, a[i], w[i]);
    }
    m = m + gradient;
    for (int i = 0; i < 3; ++i) v[i] = v[i] + w[i];
    xx = Fma(w[0], p[0], xx);
    xy = Fma(w[0], p[1], xy);
    xz = Fma(w[0], p[2], xz);
    yy = Fma(w[1], p[1], yy);
    yz = Fma(w[1], p[2], yz);
    zz = Fma(w[2], p[2], zz);
    if constexpr (kHits) {
      const Vec kx = k * p[0], ky = k * p[1], kz = k * p[2];
      xx = Fma(kx, a[0], xx);
      xy = Fma(kx, a[1], xy);
      xz = Fma(kx, a[2], xz);
      yy = Fma(ky, a[1], yy);
      yz = Fma(ky, a[2], yz);
      zz = Fma(kz, a[2], zz);
    }
    if (v_rays) AddToRays(world, at, w, k, group);
  }

  // dL/dorigin = -A^T w and dL/ddirection = -A^T (t w + k p).
  template <class Group>
  static JAXSPLAT_INLINE void AddToRays(const GaussianWorld& world, const WorldPoint& at, const Vec* w, const Vec& k,
                                        Group& group) {
    Vec u[3];
    for (int i = 0; i < 3; ++i) {
      u[i] = at.distance * w[i];
      if constexpr (kHits) u[i] = Fma(k, at.p[i], u[i]);
    }
    for (int j = 0; j < 3; ++j) {
      Vec origin = group.VRay(j), direction = group.VRay(j + 3);
      for (int i = 0; i < 3; ++i) {
        origin = Fnma(Vec(world.a[i][j]), w[i], origin);
        direction = Fnma(Vec(world.a[i][j]), u[i], direction);
      }
      group.SetVRay(j, origin);
      group.SetVRay(j + 3, direction);
    }
  }
};

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_GAUSSIAN_WORLD_VJP_H_
