#ifndef JAXSPLAT_CUDA_TILE_BACKWARD_H_
#define JAXSPLAT_CUDA_TILE_BACKWARD_H_

#include "cuda/rasterize_gaussians_3d.h"
#include "cuda/tile_pixels.h"

namespace jaxsplat::cuda {

// The gradient of the splats of a chunk of images; `result` is that of all images. No float is added atomically: each
// splat has a slot for each tile that it touches, and these are summed in order.
void DifferentiateTiles(Device& device, TileArguments arguments, bool general, const PictureGradientBatch& gradient,
                        const SplatGradient& result);

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_BACKWARD_H_
