// Arguments of the projection of 3D Gaussians by pinhole cameras.
#ifndef JAXSPLAT_OPS_PROJECT_GAUSSIANS_H_
#define JAXSPLAT_OPS_PROJECT_GAUSSIANS_H_

#include <cstdint>

namespace jaxsplat {

struct ProjectionRule {
  int64_t width, height;
  bool antialiased;
  double alpha_min, extent, compensation_min, clamp_margin, norm_floor;
};

// One scene, whose splats all cameras share.
struct Scene3d {
  int64_t cameras, splats;
  const float *means, *quats, *scales;  // [splats, 3], [splats, 4], [splats, 3]
  const float* opacities;               // [splats] or null
  const float *viewmats, *Ks;           // [cameras, 4, 4], [cameras, 3, 3]
  const float* limits;                  // [cameras, 4] near, far, eps2d, radius_clip
};

// [cameras, splats, ...], zeros for what is culled.
struct Projection {
  float *means, *conics, *depths;  // 2, 3, 1 numbers
  int32_t* radii;                  // 2 numbers
  float* compensations;
};

struct ProjectionCotangent {
  const int32_t* radii;  // of the forward pass: zeros for what is culled
  const float *means, *conics, *depths, *compensations;
};

// What a camera has gradients of: the upper rows of its matrices, and eps2d.
inline constexpr int kViewTerms = 12, kIntrinsicTerms = 6, kCameraTerms = kViewTerms + kIntrinsicTerms + 1;

// Those of the splats summed over the cameras.
struct ProjectionGradient {
  float *means, *quats, *scales;
  double* cameras;  // [cameras, kCameraTerms] summed over the splats that were asked for
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_PROJECT_GAUSSIANS_H_
