// How the threads of a block share the pixels of a tile, and the splats that they look at together.
#ifndef JAXSPLAT_CUDA_TILE_PIXELS_H_
#define JAXSPLAT_CUDA_TILE_PIXELS_H_

#include <cmath>
#include <cstdint>

#include "core/constants.h"
#include "cuda/batch.h"
#include "cuda/launch.h"
#include "cuda/sizes.h"
#include "cuda/tile_lists.h"
#include "math/compositing.h"
#include "math/gaussian_2d.h"

namespace jaxsplat::cuda {

using namespace JAXSPLAT_ISA;

inline constexpr int kWarp = 32;
inline constexpr int kMostWarps = kThreads / kWarp;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// What the kernels of both passes take.
struct TileArguments {
  ImageGrid grid;
  Rule rule;
  SplatBatch batch;
  MaskBatch masks;
  Chunk chunk;
  TileLists lists;
  int first_channel, channels;  // of this pass

  JAXSPLAT_HD int PartSide() const { return grid.tile_size < kPartSide ? static_cast<int>(grid.tile_size) : kPartSide; }
  JAXSPLAT_HD int PartsAlong() const { return (static_cast<int>(grid.tile_size) + kPartSide - 1) / kPartSide; }
  JAXSPLAT_HD int Parts() const { return PartsAlong() * PartsAlong(); }
  int Threads() const { return (PartSide() * PartSide() + kWarp - 1) / kWarp * kWarp; }
  int64_t Blocks() const { return chunk.count * grid.tiles() * Parts(); }
};

// The pixel of one thread. Sixteen threads in a row share a block of kBlockSide^2 pixels, so that those of a warp lie
// close together and tend to hit the same splats.
struct TilePixel {
  int x, y;
  int part;
  int64_t image;  // of the chunk
  int64_t pixel;  // of the image
  bool inside, on;
  ImageIndex index;
  TileRange range;

  __device__ explicit TilePixel(const TileArguments& a) {
    const int parts_along = a.PartsAlong(), parts = a.Parts(), side = a.PartSide();
    const int tiles_x = static_cast<int>(a.grid.tiles_x()), tile_size = static_cast<int>(a.grid.tile_size);
    const int64_t tile_of_all = blockIdx.x / parts, tiles = a.grid.tiles();
    part = static_cast<int>(blockIdx.x) % parts;
    image = tile_of_all / tiles;
    const int tile = static_cast<int>(tile_of_all % tiles);
    const int thread = static_cast<int>(threadIdx.x), block = thread / kBlockPixels, along = side / kBlockSide;
    const int in_tile_x = part % parts_along * side + block % along * kBlockSide + thread % kBlockSide;
    const int in_tile_y = part / parts_along * side + block / along * kBlockSide + thread % kBlockPixels / kBlockSide;
    x = tile % tiles_x * tile_size + in_tile_x;
    y = tile / tiles_x * tile_size + in_tile_y;
    inside =
        thread < side * side && in_tile_x < tile_size && in_tile_y < tile_size && x < a.grid.width && y < a.grid.height;
    pixel = static_cast<int64_t>(y) * a.grid.width + x;
    index = a.batch.axes.Split(a.chunk.first + image);
    on = a.masks.on.At(index)[a.masks.size == 1 ? 0 : tile];
    range = a.lists.ranges[tile_of_all];
  }
};

// The pixel of a thread before the first splat; one that sees nothing has ended before it begins.
template <bool kGeneral>
__device__ Composited<kGeneral> BeginPixel(const TileArguments& a, const TilePixel& me, bool sees) {
  if constexpr (kGeneral) {
    const bool limited = sees && a.batch.depth_limits.data != nullptr;
    return {Mask{sees}, Vec(limited ? a.batch.depth_limits.At(me.index)[me.pixel] : INFINITY)};
  } else {
    return Composited<kGeneral>(Mask{sees});
  }
}

// Whether splat `id` lies in front of where the pixel ends.
__device__ inline bool InFront(const TileArguments& a, const TilePixel& me, int32_t id, const Composited<true>& pixel) {
  return a.batch.depth_limits.data == nullptr || a.batch.depths.At(me.index)[id] < pixel.depth_limit.v;
}
__device__ inline bool InFront(const TileArguments&, const TilePixel&, int32_t, const Composited<false>&) {
  return true;
}

// The part of a Gaussian2d that pixels need.
struct alignas(16) PackedSplat {
  float4 centre;   // x, y, l11, l21
  float4 falloff;  // l22, floor, opacity, id
  float4 color;

  __device__ void Load(const TileLists& lists, uint32_t row) {
    const auto* from = reinterpret_cast<const float4*>(&lists.splats[row]);
    centre = from[0];
    falloff = from[1];
    color = from[2];
  }
  // A splat that hits nothing.
  __device__ void Clear() {
    centre = color = make_float4(0, 0, 0, 0);
    falloff = make_float4(1, 1, 0, 0);
  }
  __device__ Gaussian2d Unpack() const {
    Gaussian2d g;
    const float4 c = centre, f = falloff;
    g.x = c.x;
    g.y = c.y;
    g.l11 = c.z;
    g.l21 = c.w;
    g.l22 = f.x;
    g.floor = f.y;
    g.opacity = f.z;
    g.id = __float_as_int(f.w);
    return g;
  }
};

// Loads entry `entry` of the lists; one without a row hits nothing.
__device__ inline void LoadEntry(const TileLists& lists, int64_t entry, PackedSplat* to) {
  const auto row = static_cast<uint32_t>(lists.entries[entry]);
  if (row == 0xffffffffu) {
    to->Clear();
  } else {
    to->Load(lists, row);
  }
}

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_PIXELS_H_
