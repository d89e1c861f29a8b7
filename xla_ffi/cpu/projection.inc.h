// Projection of 3D Gaussians: a vector of splats in all cameras in turn. Included by one source file per instruction
// set.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/simd.h"
#include "math/projection.h"
#include "ops/project_gaussians.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// Largest radius in pixels, which leaves room in an int32 to add a radius to a tile index.
inline constexpr float kRadiusLimit = 1073741824.0f;
// The square of anything larger overflows in the gradients.
inline constexpr float kGradientLimit = 4.6116860e18f;

// Column `k` of rows [begin, begin + n) of an array with `width` columns; zeros in the other lanes.
JAXSPLAT_INLINE Vec LoadColumn(const float* rows, int width, int k, int64_t n) {
  alignas(64) float lanes[kLanes] = {};
  if (n == kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = rows[lane * width + k];
  } else {
    for (int64_t lane = 0; lane < n; ++lane) lanes[lane] = rows[lane * width + k];
  }
  return Vec::Load(lanes);
}

JAXSPLAT_INLINE void StoreColumn(const Vec& values, float* rows, int width, int k, int64_t n) {
  alignas(64) float lanes[kLanes];
  values.Store(lanes);
  if (n == kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) rows[lane * width + k] = lanes[lane];
  } else {
    for (int64_t lane = 0; lane < n; ++lane) rows[lane * width + k] = lanes[lane];
  }
}

JAXSPLAT_INLINE Ellipsoid LoadEllipsoid(const Scene3d& scene, const ProjectionRule& rule, int64_t i, int64_t n) {
  Vec mean[3], quat[4], scale[3];
  for (int k = 0; k < 3; ++k) mean[k] = LoadColumn(scene.means + 3 * i, 3, k, n);
  for (int k = 0; k < 4; ++k) quat[k] = LoadColumn(scene.quats + 4 * i, 4, k, n);
  for (int k = 0; k < 3; ++k) scale[k] = LoadColumn(scene.scales + 3 * i, 3, k, n);
  const Vec opacity = scene.opacities != nullptr ? LoadPart(scene.opacities + i, n) : Vec(0.0f);
  return MakeEllipsoid(mean, quat, scale, opacity, static_cast<float>(rule.norm_floor));
}

Pinhole CameraOf(const Scene3d& scene, const ProjectionRule& rule, int64_t camera) {
  return Pinhole(scene.viewmats + 16 * camera, scene.Ks + 9 * camera, scene.limits + 4 * camera, rule);
}

// sqrt(2 ln(opacity / alpha_min)).
JAXSPLAT_INLINE Vec ExtentOf(const Vec& opacity, float alpha_min) {
  constexpr float kTwoLn2 = 1.38629436f;
  return Sqrt(Vec(kTwoLn2) * Log2(Max(opacity / Vec(alpha_min), Vec(1.0f))));
}

// ceil(extent sqrt(variance)), at least 1: a splat whose opacity is exactly alpha_min can still reach the pixel that it
// is centred on.
JAXSPLAT_INLINE Vec RadiusOf(const Vec& extent, const Vec& variance) {
  const Vec reach = Min(extent * Sqrt(variance), Vec(kRadiusLimit));
  alignas(64) float lanes[kLanes];
  reach.Store(lanes);
  for (float& lane : lanes) lane = std::max(std::ceil(lane), 1.0f);
  return Vec::Load(lanes);
}

struct Drawn {
  Mask visible;
  Vec across, down;  // radii
};

JAXSPLAT_INLINE Drawn FindVisible(const Screen& s, const Pinhole& k, const ProjectionRule& rule, const Mask& on,
                                  const Vec* opacity, const Vec& extent) {
  const Vec limit(kGradientLimit), one(1.0f), zero(0.0f);
  const Vec trace = s.a + s.c;
  Drawn d;
  Mask visible = on & (trace < limit) & (one < s.det * limit) & (trace < limit * s.det);
  for (const Vec& value : {s.x, s.y, s.z, s.u, s.v, s.b}) visible = visible & (Abs(value) < limit);
  Vec reach = extent;
  if (opacity != nullptr) {
    const auto alpha_min = static_cast<float>(rule.alpha_min);
    const Vec seen = rule.antialiased ? *opacity * s.compensation : *opacity;
    visible = visible & (Vec(alpha_min) <= seen);
    if (rule.antialiased) reach = ExtentOf(seen, alpha_min);
  }
  d.across = RadiusOf(reach, s.a);
  d.down = RadiusOf(reach, s.c);
  visible = visible & ((Vec(k.radius_clip) < d.across) | (Vec(k.radius_clip) < d.down));
  visible = visible & (zero < s.u + d.across) & (s.u - d.across < Vec(static_cast<float>(rule.width)));
  d.visible = visible & (zero < s.v + d.down) & (s.v - d.down < Vec(static_cast<float>(rule.height)));
  return d;
}

void Project(const Scene3d& scene, const ProjectionRule& rule, int64_t begin, int64_t end, const Projection& out) {
  const auto compensation_min = static_cast<float>(rule.compensation_min);
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, end - i);
    const Ellipsoid splat = LoadEllipsoid(scene, rule, i, n);
    Vec opacity(0.0f), extent(static_cast<float>(rule.extent));
    if (scene.opacities != nullptr) {
      opacity = Keep(splat.usable, LoadPart(scene.opacities + i, n));
      if (!rule.antialiased) extent = ExtentOf(opacity, static_cast<float>(rule.alpha_min));
    }
    for (int64_t c = 0; c < scene.cameras; ++c) {
      const Pinhole camera = CameraOf(scene, rule, c);
      const Vec depth = camera.Transform(2, splat.mean);
      const Mask on = splat.usable & (Vec(camera.near) < depth) & (depth < Vec(camera.far)) &
                      (Vec(camera.usable ? 0.0f : 1.0f) < Vec(0.5f));
      const Screen s = jaxsplat::JAXSPLAT_ISA::Project(splat, camera, on, compensation_min);
      const Drawn d = FindVisible(s, camera, rule, on, scene.opacities != nullptr ? &opacity : nullptr, extent);
      const int64_t at = c * scene.splats + i;
      const Mask& m = d.visible;
      StoreColumn(Keep(m, s.u), out.means + 2 * at, 2, 0, n);
      StoreColumn(Keep(m, s.v), out.means + 2 * at, 2, 1, n);
      StoreColumn(Keep(m, s.c * s.inverse_det), out.conics + 3 * at, 3, 0, n);
      StoreColumn(Keep(m, Vec(0.0f) - s.b * s.inverse_det), out.conics + 3 * at, 3, 1, n);
      StoreColumn(Keep(m, s.a * s.inverse_det), out.conics + 3 * at, 3, 2, n);
      StorePart(Keep(m, s.z), out.depths + at, n);
      StorePart(Keep(m, s.compensation), out.compensations + at, n);
      alignas(64) float across[kLanes], down[kLanes];
      Keep(m, d.across).Store(across);
      Keep(m, d.down).Store(down);
      for (int64_t lane = 0; lane < n; ++lane) {
        out.radii[2 * (at + lane)] = static_cast<int32_t>(across[lane]);
        out.radii[2 * (at + lane) + 1] = static_cast<int32_t>(down[lane]);
      }
    }
  }
}

// `terms` is scratch: [cameras, kCameraTerms, kLanes].
void ProjectGradient(const Scene3d& scene, const ProjectionRule& rule, const ProjectionCotangent& v, int64_t begin,
                     int64_t end, float* terms, const ProjectionGradient& out) {
  const auto compensation_min = static_cast<float>(rule.compensation_min);
  const int64_t count = scene.cameras * kCameraTerms;
  std::fill_n(terms, count * kLanes, 0.0f);
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, end - i);
    const Ellipsoid splat = LoadEllipsoid(scene, rule, i, n);
    const Vec zero(0.0f);
    const Vec3 nothing{zero, zero, zero};
    Vec3 v_mean = nothing, v_factor[3] = {nothing, nothing, nothing};
    for (int64_t c = 0; c < scene.cameras; ++c) {
      const int64_t at = c * scene.splats + i;
      alignas(64) float drawn[kLanes] = {};
      for (int64_t lane = 0; lane < n; ++lane) drawn[lane] = v.radii[2 * (at + lane)] > 0 ? 1.0f : 0.0f;
      const Mask on = Vec(0.5f) < Vec::Load(drawn);
      if (!Any(on)) continue;
      const Pinhole camera = CameraOf(scene, rule, c);
      const Screen s = jaxsplat::JAXSPLAT_ISA::Project(splat, camera, on, compensation_min);
      ScreenGradient g;
      g.u = Keep(on, LoadColumn(v.means + 2 * at, 2, 0, n));
      g.v = Keep(on, LoadColumn(v.means + 2 * at, 2, 1, n));
      for (int k = 0; k < 3; ++k) g.conic[k] = Keep(on, LoadColumn(v.conics + 3 * at, 3, k, n));
      g.depth = Keep(on, LoadPart(v.depths + at, n));
      g.compensation = Keep(on, LoadPart(v.compensations + at, n));
      Vec v_camera[kCameraTerms];
      float* const sums = terms + c * kCameraTerms * kLanes;
      for (int k = 0; k < kCameraTerms; ++k) v_camera[k] = Vec::Load(sums + k * kLanes);
      ProjectVjp(splat, camera, s, g, &v_mean, v_factor, v_camera);
      for (int k = 0; k < kCameraTerms; ++k) v_camera[k].Store(sums + k * kLanes);
    }
    Vec v_quat[4], v_scale[3];
    EllipsoidVjp(splat, v_factor, v_quat, v_scale);
    StoreColumn(v_mean.x, out.means + 3 * i, 3, 0, n);
    StoreColumn(v_mean.y, out.means + 3 * i, 3, 1, n);
    StoreColumn(v_mean.z, out.means + 3 * i, 3, 2, n);
    for (int k = 0; k < 4; ++k) StoreColumn(v_quat[k], out.quats + 4 * i, 4, k, n);
    for (int k = 0; k < 3; ++k) StoreColumn(v_scale[k], out.scales + 3 * i, 3, k, n);
  }
  for (int64_t k = 0; k < count; ++k) {
    double sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += static_cast<double>(terms[k * kLanes + lane]);
    out.cameras[k] = sum;
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
