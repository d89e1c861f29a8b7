// What the rasterizer along rays does beyond that of projected splats: before the tiles, and behind them.
#ifndef JAXSPLAT_CPU_RASTERIZE_GAUSSIANS_WORLD_H_
#define JAXSPLAT_CPU_RASTERIZE_GAUSSIANS_WORLD_H_

#include <cstdint>

#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "cpu/tile_kernels.h"

namespace jaxsplat {

// The anchor: where the first ray that sees anything starts.
const float* FindAnchor(const ImageGrid& grid, const float* rays);

// Splats by id, seen from the anchor. All null without a world.
struct PreparedWorld {
  const GaussianWorld* splats = nullptr;
  const float* anchor = nullptr;
};

PreparedWorld PrepareWorld(Pool* pool, Scratch& scratch, const ImageGrid& grid, const Splats2d& splats);

// Writes the gradient of one splat from its moments, adding if it is not the first pass.
void WriteGradient(const Splats2d& splats, const float* anchor, int64_t id, const MomentsWorld& moments, bool touched,
                   bool first_pass, const SplatGradient& result);

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_RASTERIZE_GAUSSIANS_WORLD_H_
