// The innermost loops of the rasterizer, compiled once per instruction set and chosen when the module is loaded.
#ifndef JAXSPLAT_CPU_TILE_KERNELS_H_
#define JAXSPLAT_CPU_TILE_KERNELS_H_

#include <cstdint>

#include "core/constants.h"
#include "math/gaussian_2d.h"
#include "ops/adam.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// A splat that touches a tile, and where its gradient from that tile goes.
struct TileEntry {
  uint32_t id, slot;
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
  float* scratch;  // [ScratchFloats(...)]
};

// Where the gradients of a tile's entries go. A slot holds Moments2d and the gradients of the colors, padded with zeros
// to a multiple of four, and is written only if touched[slot] becomes 1.
struct GradientSlots {
  float* values;  // [entries, stride]
  int64_t stride;
  uint8_t* touched;                 // [entries]
  const float* conics;              // [N, 3], by id
  int64_t first_channel, channels;  // the channels differentiated in this pass
  bool first_pass;                  // whether v_transmittances take part (once)
  bool absgrad;
};
inline constexpr int kMomentSlots = sizeof(Moments2d) / sizeof(float);

// The tiles [x0, x1] of one row of tiles, none if x0 > x1; and the rows [y0, y1] that have tiles.
struct TileSpan {
  int32_t x0, x1;
};
struct TileRows {
  int32_t y0, y1;
};

struct Kernels {
  const char* name;
  // Splats [begin, end), prepared as far as they are visible.
  void (*prepare)(const Splats2d&, int64_t begin, int64_t end, double alpha_min, Gaussian2d*);
  // The tiles that prepared splats [begin, end) of an order touch: their rows, then the spans of all rows one after
  // another.
  void (*rows)(const Gaussian2d*, const uint32_t* order, const ImageGrid&, int64_t begin, int64_t end, TileRows*);
  void (*spans)(const Gaussian2d*, const uint32_t* order, const ImageGrid&, int64_t begin, int64_t end, const TileRows*,
                TileSpan*);
  void (*forward)(const TileJob&, const Picture&);
  void (*backward)(const TileJob&, const PictureGradient&, const GradientSlots&);
  // Elements [begin, end).
  void (*adam)(const AdamRule&, const AdamArrays&, int64_t begin, int64_t end);
};

// Floats of scratch that a tile needs for `channels` channels per pixel.
inline int64_t ScratchFloats(int64_t channels) { return (int64_t{kMaxBlocks} + 1) * kBlockPixels * channels; }

// The best kernels that this processor runs; the environment variable JAXSPLAT_ISA (avx512, avx2 or baseline) asks for
// less.
const Kernels& BestKernels();

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_KERNELS_H_
