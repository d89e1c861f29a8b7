// Rasterizes one image on the CPU: prepares the splats, finds the tile lists, and shares the tiles between threads.
#ifndef JAXSPLAT_CPU_RASTERIZE_GAUSSIANS_3D_H_
#define JAXSPLAT_CPU_RASTERIZE_GAUSSIANS_3D_H_

#include "cpu/parallel.h"
#include "ops/intersect_tiles.h"
#include "ops/rasterize_gaussians_3d.h"
#include "ops/trace_contributors.h"

namespace jaxsplat {

// With `keep`, what was prepared is kept for a backward pass over the same splats.
void RasterizeForward(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                      const TileMask& mask, bool keep, const Picture& picture);

// With `kept`, looks first for what a forward pass over the same splats kept.
void RasterizeBackward(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                       const TileMask& mask, bool kept, const PictureGradient& gradient, const SplatGradient& result);

// Lists what each pixel blends, by the forward pass over the same splats.
void TraceContributors(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                       const TileMask& mask, const Contributors& contributors);

void IntersectTiles(Pool* pool, const ImageGrid& grid, const IntersectInput& input, const IntersectOutput& output);

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_RASTERIZE_GAUSSIANS_3D_H_
