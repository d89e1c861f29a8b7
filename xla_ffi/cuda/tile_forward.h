#ifndef JAXSPLAT_CUDA_TILE_FORWARD_H_
#define JAXSPLAT_CUDA_TILE_FORWARD_H_

#include "cuda/tile_pixels.h"

namespace jaxsplat::cuda {

// Blends the splats of a chunk of images; `picture` is that of all images.
void BlendTiles(Device& device, TileArguments arguments, bool general, const Picture& picture);

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_FORWARD_H_
