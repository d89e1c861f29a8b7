// Arguments of the rasterizer of projected 3D Gaussians: plain pointers, one image at a time.
#ifndef JAXSPLAT_OPS_RASTERIZE_GAUSSIANS_3D_H_
#define JAXSPLAT_OPS_RASTERIZE_GAUSSIANS_3D_H_

#include <cstdint>

#include "core/host_device.h"
#include "ops/rasterize_gaussians_world.h"

namespace jaxsplat {

// Finite, so that its product with an alpha of zero is zero.
inline constexpr double kUnlimitedGradient = 3e38;

struct BlendRule {
  double alpha_max, alpha_min, transmittance_min;
  bool blend_last;
  int64_t max_contributors;  // 0: no limit
  // In the backward pass: of dL/dalpha of each splat at each pixel.
  double alpha_gradient_max = kUnlimitedGradient;

  JAXSPLAT_HD bool ClipsGradients() const { return alpha_gradient_max < kUnlimitedGradient; }
};

struct ImageGrid {
  int64_t width, height, tile_size;
  JAXSPLAT_HD int64_t tiles_x() const { return (width + tile_size - 1) / tile_size; }
  JAXSPLAT_HD int64_t tiles_y() const { return (height + tile_size - 1) / tile_size; }
  JAXSPLAT_HD int64_t tiles() const { return tiles_x() * tiles_y(); }
};

// Lists made by the caller; ids is null where there are none.
struct GivenLists {
  const int32_t* ids = nullptr;      // [M]
  const int32_t* offsets = nullptr;  // [tiles + 1]
  int64_t capacity = 0;              // M
  int64_t count = 0;                 // true number of intersections
};

// How lists are found.
struct ListRule {
  bool boxes;             // by the boxes mean +- radii, not by ellipses
  int64_t most_entries;   // of all lists together: the farthest splats that do not fit are left out; 0: no limit
  int64_t most_per_tile;  // of each list: so many are blended, the nearest; 0: no limit
};

struct Splats2d {
  int64_t size;            // N
  int64_t channels;        // D
  const float* means;      // [N, 2]
  const float* conics;     // [N, 3]; null along rays with given lists: each splat of a list may be seen anywhere
  const float* colors;     // [N, D]
  const float* opacities;  // [N]
  const float* depths;     // [N], with given lists only used where there are limits
  const int32_t* radii;    // [N, 2], unused with given lists
  GivenLists lists;
  ListRule list_rule;         // of lists that are found
  const float* depth_limits;  // [H, W] where what lies in front of each pixel ends, or null
  const WorldSplats* world;   // evaluated along rays, or null

  // Whether splat i takes part where the lists are found here.
  JAXSPLAT_HD bool Visible(int64_t i) const {
    return radii[2 * i] > 0 && radii[2 * i + 1] > 0 && (depths == nullptr || depths[i] - depths[i] == 0);
  }
};

struct TileMask {
  const bool* on;  // one value for all tiles, or one per tile
  int64_t size;
  JAXSPLAT_HD bool operator[](int64_t tile) const { return on[size == 1 ? 0 : tile]; }
};

struct Picture {
  float* colors;                  // [H, W, D], without background
  float* transmittances;          // [H, W]
  int32_t* last_ids;              // [H, W]
  float* hits = nullptr;          // [H, W, kHitChannels] or null
  int32_t* left_out = nullptr;    // number of entries that lie beyond ListRule::most_per_tile
  int32_t* list_count = nullptr;  // number of entries that the tile lists have, or would have without a limit
};

struct PictureGradient {
  const float* colors;            // [H, W, D] of the forward pass
  const float* transmittances;    // [H, W] of the forward pass
  const float* v_colors;          // [H, W, D]
  const float* v_transmittances;  // [H, W]
  const float* hits = nullptr;    // [H, W, kHitChannels] of the forward pass, or null
  const float* v_hits = nullptr;  // [H, W, kHitChannels] or null
};

struct SplatGradient {
  float* means;                          // [N, 2]
  float* conics;                         // [N, 3]
  float* colors;                         // [N, D]
  float* opacities;                      // [N]
  float* absgrads;                       // [N, 2] or null
  const WorldGradient* world = nullptr;  // along rays, in place of means, conics and absgrads
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_RASTERIZE_GAUSSIANS_3D_H_
