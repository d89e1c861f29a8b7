// Rasterizes all images of a call on a CUDA device.
#ifndef JAXSPLAT_CUDA_RASTERIZE_GAUSSIANS_3D_H_
#define JAXSPLAT_CUDA_RASTERIZE_GAUSSIANS_3D_H_

#include "cuda/batch.h"
#include "cuda/device.h"
#include "ops/intersect_tiles.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat::cuda {

// As PictureGradient, of all images.
struct PictureGradientBatch {
  Batched<float> colors, transmittances, v_colors, v_transmittances;
  Batched<float> hits = {}, v_hits = {};  // no data where none were asked for
};

// The pictures and gradients that are written are those of all images, one after another.
void RasterizeForward(Device& device, const ImageGrid& grid, const BlendRule& blend, const SplatBatch& splats,
                      const MaskBatch& masks, const Picture& pictures);

void RasterizeBackward(Device& device, const ImageGrid& grid, const BlendRule& blend, const SplatBatch& splats,
                       const MaskBatch& masks, const PictureGradientBatch& gradients, const SplatGradient& result);

// By ellipse if there are conics, else by box; the others of `splats` may be null.
void IntersectTiles(Device& device, const ImageGrid& grid, const SplatBatch& splats, double alpha_min, int64_t capacity,
                    const IntersectOutput& output);

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_RASTERIZE_GAUSSIANS_3D_H_
