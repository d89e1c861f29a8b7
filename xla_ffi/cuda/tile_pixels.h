// The pixels of a tile as they see splats, and the splats that they look at together.
#ifndef JAXSPLAT_CUDA_TILE_PIXELS_H_
#define JAXSPLAT_CUDA_TILE_PIXELS_H_

#include <cmath>
#include <cstdint>

#include "cuda/batch.h"
#include "cuda/tile_blocks.h"
#include "math/compositing.h"
#include "math/gaussian_2d.h"

namespace jaxsplat::cuda {

using namespace JAXSPLAT_ISA;

// What the kernels of both passes take.
struct TileArguments : TileBlocks {
  Rule rule;
  SplatBatch batch;
  MaskBatch masks;
  int first_channel, channels;  // of this pass
};

struct TilePixel : BlockPixel {
  bool on;
  ImageIndex index;

  __device__ explicit TilePixel(const TileArguments& a) : BlockPixel(a) {
    index = a.batch.axes.Split(a.chunk.first + image);
    on = a.masks.on.At(index)[a.masks.size == 1 ? 0 : tile];
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
