// The next few splats of a tile's list, copied together, and for each 4x4 block of pixels the set of those that touch
// it.
#ifndef JAXSPLAT_CPU_TILE_BATCH_H_
#define JAXSPLAT_CPU_TILE_BATCH_H_

#include <cstdint>

#include "core/constants.h"
#include "core/simd.h"
#include "cpu/tile_kernels.h"
#include "math/gaussian_2d.h"

namespace jaxsplat::JAXSPLAT_ISA {

// The blocks of one tile.
struct BlockGrid {
  int side, count;  // blocks along one side, and in all
  float x0, y0;     // centre of the tile's first pixel
  int64_t column, row;
  int64_t width, height;

  explicit BlockGrid(const TileJob& job) {
    side = static_cast<int>(job.grid.tile_size / kBlockSide);
    count = side * side;
    column = job.tile % job.grid.tiles_x() * job.grid.tile_size;
    row = job.tile / job.grid.tiles_x() * job.grid.tile_size;
    x0 = static_cast<float>(column) + 0.5f;
    y0 = static_cast<float>(row) + 0.5f;
    width = job.grid.width;
    height = job.grid.height;
  }
  int64_t block_column(int block) const { return column + block % side * kBlockSide; }
  int64_t block_row(int block) const { return row + block / side * kBlockSide; }

  // Centres of the pixels of a block. Returns which of them lie in the image.
  Mask Centres(int block, Vec* x, Vec* y) const {
    alignas(64) float xs[kBlockPixels], ys[kBlockPixels];
    for (int i = 0; i < kBlockPixels; ++i) {
      xs[i] = static_cast<float>(block_column(block) + i % kBlockSide) + 0.5f;
      ys[i] = static_cast<float>(block_row(block) + i / kBlockSide) + 0.5f;
    }
    *x = Vec::Load(xs);
    *y = Vec::Load(ys);
    return (*x < Vec(static_cast<float>(width))) & (*y < Vec(static_cast<float>(height)));
  }

  // Calls f(i, pixel) for the pixels of a block that lie in the image: i within the block, pixel within the image.
  template <class F>
  JAXSPLAT_INLINE void ForEachPixel(int block, const F& f) const {
    const int64_t px = block_column(block), py = block_row(block), first = py * width + px;
    if (px + kBlockSide <= width && py + kBlockSide <= height) {
      for (int y = 0; y < kBlockSide; ++y) {
        for (int x = 0; x < kBlockSide; ++x) f(y * kBlockSide + x, first + y * width + x);
      }
    } else {
      for (int y = 0; y < kBlockSide && py + y < height; ++y) {
        for (int x = 0; x < kBlockSide && px + x < width; ++x) f(y * kBlockSide + x, first + y * width + x);
      }
    }
  }

  // Reads one value per pixel of a block, in an image of `stride` values a pixel; 0 outside the image.
  JAXSPLAT_INLINE Vec Load(const float* image, int64_t stride, int block) const {
    alignas(64) float values[kBlockPixels] = {};
    ForEachPixel(block, [&](int i, int64_t pixel) { values[i] = image[pixel * stride]; });
    return Vec::Load(values);
  }

  // Writes one value of four bytes per pixel of a block.
  template <class T>
  JAXSPLAT_INLINE void Store(T* image, int64_t stride, int block, const Vec& v) const {
    static_assert(sizeof(T) == sizeof(float));
    alignas(64) T values[kBlockPixels];
    v.Store(reinterpret_cast<float*>(values));
    ForEachPixel(block, [&](int i, int64_t pixel) { image[pixel * stride] = values[i]; });
  }
};

struct Batch {
  Gaussian2d splats[kBatch];
  int size;
  uint64_t touching[kMaxBlocks];  // one bit per splat of the batch

  // Takes the entries [start, start + kBatch) of the job's list, as far as there are any.
  void Load(const TileJob& job, const BlockGrid& grid, int64_t start) {
    const int64_t left = job.size - start;
    size = static_cast<int>(left < kBatch ? left : kBatch);
    for (int i = 0; i < size; ++i) {
      if (start + i + kAhead < job.size) __builtin_prefetch(&job.splats[job.ranks[start + i + kAhead]]);
      splats[i] = job.splats[job.ranks[start + i]];
    }
    FindBlocks(grid);
  }

 private:
  static constexpr int kAhead = 16;

  void FindBlocks(const BlockGrid& grid) {
    alignas(64) int32_t index[kBlockPixels];
    for (int b = 0; b < grid.count; ++b) touching[b] = 0;
    for (int first = 0; first < size; first += kBlockPixels) {
      const int valid = size - first < kBlockPixels ? size - first : kBlockPixels;
      for (int i = 0; i < kBlockPixels; ++i) index[i] = (first + (i < valid ? i : 0)) * kGaussianStride;
      const auto field = [&](const float& f) { return Vec::Gather(&f, index); };
      const Gaussian2d& s = splats[0];
      const Vec x = field(s.x), y = field(s.y), l21 = field(s.l21), l22 = field(s.l22);
      const Vec half_height = field(s.half_height), shear_y = field(s.shear_y);
      const Vec inv_l11 = field(s.inv_l11), level = field(s.level);
      const Vec margin(kExtentMargin);
      const uint64_t lanes = valid == kBlockPixels ? 0xffffu : (1u << valid) - 1;
      for (int row = 0; row < grid.side; ++row) {
        const Vec y0 = Vec(grid.y0 + static_cast<float>(row * kBlockSide)) - y;
        const Vec y1 = y0 + Vec(kBlockSide - 1.0f);
        const Mask in_band = (y0 <= half_height + margin) & (Vec(0.0f) - half_height - margin <= y1);
        if (!Any(in_band)) continue;
        Vec left, right;
        BandExtent(half_height, shear_y, l21, l22, inv_l11, level, y0, y1, &left, &right);
        left = left + x - margin;
        right = right + x + margin;
        for (int column = 0; column < grid.side; ++column) {
          const float x0 = grid.x0 + static_cast<float>(column * kBlockSide);
          const Mask in_block = in_band & (Vec(x0) <= right) & (left <= Vec(x0 + (kBlockSide - 1.0f)));
          touching[row * grid.side + column] |= (Bits(in_block) & lanes) << first;
        }
      }
    }
  }
};

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CPU_TILE_BATCH_H_
