// What the innermost loops of the rasterizer of projected Gaussians take.
#ifndef JAXSPLAT_CPU_TILE_KERNELS_H_
#define JAXSPLAT_CPU_TILE_KERNELS_H_

#include <cstdint>

#include "core/constants.h"
#include "math/gaussian_2d.h"
#include "math/gaussian_world.h"
#include "ops/rasterize_gaussians_3d.h"
#include "ops/rasterize_gaussians_world.h"
#include "ops/trace_contributors.h"

namespace jaxsplat {

// A splat that touches a tile, and where its gradient from that tile goes.
struct TileEntry {
  uint32_t id, slot;
};

// What the pixels of a tile blend of one splat of its list.
struct TraceSlot {
  double weight;
  int64_t pixels;
};
struct TileTrace {
  Contributors to;
  TraceSlot* slots;  // [entries]
};

// One tile of an image and its list of splats, nearest first.
struct TileJob {
  ImageGrid grid;
  BlendRule blend;
  int64_t tile;
  const Gaussian2d* splats;  // by id
  const TileEntry* entries;  // [size]
  int64_t size;
  const float* colors;  // [N, channels], by id
  int64_t channels;
  const float* depths;        // [N], by id, used where there are limits
  const float* depth_limits;  // [H, W] or null
  float* scratch;             // [ScratchFloats(...)]
  // Only where splats are evaluated along rays, which start at the anchor or near it.
  const GaussianWorld* world = nullptr;  // by id
  const float* rays = nullptr;           // [H, W, 6]
  const float* anchor = nullptr;
  const TileTrace* trace = nullptr;  // where the splats of each pixel are to be listed, or null
};

// Where the gradients of a tile's entries go. A slot holds the moments of its primitive and the gradients of the
// colors, padded with zeros to a multiple of four, and is written only if touched[slot] becomes 1.
struct GradientSlots {
  float* values;  // [entries, stride]
  int64_t stride;
  uint8_t* touched;                 // [entries]
  const float* conics;              // [N, 3], by id
  int64_t first_channel, channels;  // the channels differentiated in this pass
  bool first_pass;                  // whether v_transmittances take part (once)
  bool absgrad;
  float* v_rays = nullptr;  // [H, W, 6], to which the tiles add, or null
};

// Floats of scratch that a tile needs for `channels` channels per pixel.
inline int64_t ScratchFloats(int64_t channels) { return (int64_t{kMaxBlocks} + 1) * kBlockPixels * channels; }

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_KERNELS_H_
