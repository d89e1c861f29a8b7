// Blocks of threads as the tiles of a chunk of images, and their threads as pixels.
#ifndef JAXSPLAT_CUDA_TILE_BLOCKS_H_
#define JAXSPLAT_CUDA_TILE_BLOCKS_H_

#include <cstdint>

#include "core/constants.h"
#include "cuda/batch.h"
#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/tile_lists.h"

namespace jaxsplat::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kMostWarps = kThreads / kWarp;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// What kernels that work on tiles take: a block of threads for each tile, or for each part of a large one.
struct TileBlocks {
  ImageGrid grid;
  Chunk chunk;
  TileLists lists;

  JAXSPLAT_HD int PartSide() const { return grid.tile_size < kPartSide ? static_cast<int>(grid.tile_size) : kPartSide; }
  JAXSPLAT_HD int PartsAlong() const { return (static_cast<int>(grid.tile_size) + kPartSide - 1) / kPartSide; }
  JAXSPLAT_HD int Parts() const { return PartsAlong() * PartsAlong(); }
  int Threads() const { return (PartSide() * PartSide() + kWarp - 1) / kWarp * kWarp; }
  int64_t Blocks() const { return chunk.count * grid.tiles() * Parts(); }
};

// The pixel of one thread. Sixteen threads in a row share a block of kBlockSide^2 pixels, so that those of a warp lie
// close together and tend to hit the same splats.
struct BlockPixel {
  int x, y;
  int part;
  int tile;
  int64_t image;  // of the chunk
  int64_t pixel;  // of the image
  bool inside;
  TileRange range;

  __device__ explicit BlockPixel(const TileBlocks& a) {
    const int parts_along = a.PartsAlong(), parts = a.Parts(), side = a.PartSide();
    const int tiles_x = static_cast<int>(a.grid.tiles_x()), tile_size = static_cast<int>(a.grid.tile_size);
    const int64_t tile_of_all = blockIdx.x / parts, tiles = a.grid.tiles();
    part = static_cast<int>(blockIdx.x) % parts;
    image = tile_of_all / tiles;
    tile = static_cast<int>(tile_of_all % tiles);
    const int thread = static_cast<int>(threadIdx.x), block = thread / kBlockPixels, along = side / kBlockSide;
    const int in_tile_x = part % parts_along * side + block % along * kBlockSide + thread % kBlockSide;
    const int in_tile_y = part / parts_along * side + block / along * kBlockSide + thread % kBlockPixels / kBlockSide;
    x = tile % tiles_x * tile_size + in_tile_x;
    y = tile / tiles_x * tile_size + in_tile_y;
    inside =
        thread < side * side && in_tile_x < tile_size && in_tile_y < tile_size && x < a.grid.width && y < a.grid.height;
    pixel = static_cast<int64_t>(y) * a.grid.width + x;
    range = a.lists.ranges[tile_of_all];
  }
};

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_BLOCKS_H_
