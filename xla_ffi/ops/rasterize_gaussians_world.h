// Arguments of the rasterizer of 3D Gaussians along rays, beside those of the rasterizer of projected ones, whose
// means2d and conics then only bound where a splat is seen.
#ifndef JAXSPLAT_OPS_RASTERIZE_GAUSSIANS_WORLD_H_
#define JAXSPLAT_OPS_RASTERIZE_GAUSSIANS_WORLD_H_

#include <cstdint>

#include "core/host_device.h"

namespace jaxsplat {

struct WorldSplats {
  const float* means;    // [N, 3]
  const float* quats;    // [N, 4] w, x, y, z
  const float* scales;   // [N, 3]
  const float* normals;  // [N, 3], or null where no distances and normals are asked for
  const float* rays;     // [H, W, 6] origin and direction; a pixel whose direction is zero or not finite sees nothing
};

struct WorldGradient {
  float* means;    // [N, 3]
  float* quats;    // [N, 4]
  float* scales;   // [N, 3]
  float* normals;  // [N, 3], or null
  float* rays;     // [H, W, 6], or null
};

// Whether the pixel of a ray sees anything.
JAXSPLAT_HD inline bool Sees(const float* ray) {
  float finite = 0;  // becomes NaN
  for (int k = 0; k < 6; ++k) finite += ray[k] * 0.0f;
  return finite == 0 && (ray[3] != 0 || ray[4] != 0 || ray[5] != 0);
}

// Sums over a pixel's splats of weight times distance, and of weight times normal.
inline constexpr int kHitChannels = 4;

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_RASTERIZE_GAUSSIANS_WORLD_H_
