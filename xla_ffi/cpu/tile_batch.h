// The blocks of a tile, and the next few splats of its list with the blocks that they touch.
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

  bool WhollyInside(int block) const {
    return block_column(block) + kBlockSide <= width && block_row(block) + kBlockSide <= height;
  }

  // Calls f(i, pixel) for the pixels of a block that lie in the image: i within the block, pixel within the image.
  template <class F>
  JAXSPLAT_INLINE void ForEachPixel(int block, const F& f) const {
    const int64_t px = block_column(block), py = block_row(block), first = py * width + px;
    if (WhollyInside(block)) {
      for (int y = 0; y < kBlockSide; ++y) {
        for (int x = 0; x < kBlockSide; ++x) f(y * kBlockSide + x, first + y * width + x);
      }
    } else {
      for (int y = 0; y < kBlockSide && py + y < height; ++y) {
        for (int x = 0; x < kBlockSide && px + x < width; ++x) f(y * kBlockSide + x, first + y * width + x);
      }
    }
  }

  // Fetches the tile's part of an image of `stride` values a pixel ahead of time: its rows lie apart, which no
  // processor foresees.
  void Prefetch(const float* image, int64_t stride) const {
    constexpr int64_t kLine = 64 / sizeof(float);
    const int64_t end_row = row + side * kBlockSide < height ? row + side * kBlockSide : height;
    const int64_t end_column = column + side * kBlockSide < width ? column + side * kBlockSide : width;
    for (int64_t y = row; y < end_row; ++y) {
      const float* const end = image + (y * width + end_column) * stride;
      for (const float* p = image + (y * width + column) * stride; p < end; p += kLine) __builtin_prefetch(p);
    }
  }

  // Writes one value per pixel of a block, in an image of `stride` values a pixel.
  JAXSPLAT_INLINE void Store(float* image, int64_t stride, int block, const float* values) const {
    ForEachPixel(block, [&](int i, int64_t pixel) { image[pixel * stride] = values[i]; });
  }
};

// How many groups make a block: a group is as many of its pixels as a vector has lanes.
inline constexpr int kGroups = kBlockPixels / kLanes;

// Centres of the pixels of a tile's groups. Kept as the few different vectors that there are: the less memory the inner
// loops touch, the fewer of their loads seem to depend on an earlier store to the same place of another page.
struct PixelCentres {
  explicit PixelCentres(const BlockGrid& grid) {
    constexpr int kGroupRows = kBlockSide / kGroups;
    for (int b = 0; b < grid.side; ++b) {
      for (int i = 0; i < kLanes; ++i) {
        xs[b][i] = grid.x0 + static_cast<float>(b * kBlockSide + i % kBlockSide);
        for (int k = 0; k < kGroups; ++k) {
          ys[b * kGroups + k][i] = grid.y0 + static_cast<float>(b * kBlockSide + k * kGroupRows + i / kBlockSide);
        }
      }
    }
    for (int b = 0; b < grid.count; ++b) {
      column[b] = static_cast<uint8_t>(b % grid.side);
      row[b] = static_cast<uint8_t>(b / grid.side * kGroups);
    }
  }
  JAXSPLAT_INLINE Vec x(int block) const { return Vec::Load(xs[column[block]]); }
  JAXSPLAT_INLINE Vec y(int block, int group) const { return Vec::Load(ys[row[block] + group]); }

  // Which pixels lie in the image.
  Mask Inside(const BlockGrid& grid, int block, int group) const {
    return (x(block) < Vec(static_cast<float>(grid.width))) & (y(block, group) < Vec(static_cast<float>(grid.height)));
  }

 private:
  static constexpr int kMaxSide = kMaxTileSize / kBlockSide;
  alignas(64) float xs[kMaxSide][kLanes], ys[kMaxSide * kGroups][kLanes];
  uint8_t column[kMaxBlocks], row[kMaxBlocks];
};

// A set of blocks of a tile, or of splats of a batch.
using Bits64 = uint64_t;

// The next few splats of a tile's list, copied together.
struct Batch {
  Gaussian2d splats[kBatch];
  float depths[kBatch];  // only with kGeneral; in front of all limits where there are none
  int size;

  // Takes the entries [start, start + kBatch) of the job's list, as far as there are any.
  template <bool kGeneral>
  void Load(const TileJob& job, int64_t start) {
    const int64_t left = job.size - start;
    size = static_cast<int>(left < kBatch ? left : kBatch);
    for (int i = 0; i < size; ++i) {
      const Gaussian2d& s = splats[i] = job.splats[job.entries[start + i].id];
      x[i] = s.x;
      y[i] = s.y;
      l21[i] = s.l21;
      l22[i] = s.l22;
      half_height[i] = s.half_height;
      shear_y[i] = s.shear_y;
      inv_l11[i] = s.inv_l11;
      level[i] = s.level;
      if constexpr (kGeneral) depths[i] = job.depth_limits != nullptr ? job.depths[s.id] : 0.0f;
    }
  }

  // Fetches entry i of the next batch ahead of time.
  JAXSPLAT_INLINE static void Prefetch(const TileJob& job, int64_t start, int i) {
    const int64_t next = start + kBatch + i;
    if (next < job.size) __builtin_prefetch(&job.splats[job.entries[next].id]);
  }

  // For each block, the splats that touch it.
  void SplatsOfBlocks(const BlockGrid& grid, Bits64* splats_of) const {
    for (int b = 0; b < grid.count; ++b) splats_of[b] = 0;
    for (int first = 0; first < size; first += kLanes) {
      const Bits64 lanes = LanesFrom(first);
      ForEachBlock(grid, first, [&](int b, const Mask& touch) { splats_of[b] |= (Bits(touch) & lanes) << first; });
    }
  }

  // For each splat, the blocks that it touches.
  void BlocksOfSplats(const BlockGrid& grid, Bits64* blocks_of) const {
    // Bits are summed as floats, as many as a float holds exactly.
    constexpr int kDigits = 16, kSums = kMaxBlocks / kDigits;
    for (int first = 0; first < size; first += kLanes) {
      Vec sums[kSums];
      for (Vec& sum : sums) sum = Vec(0.0f);
      ForEachBlock(grid, first, [&](int b, const Mask& touch) {
        sums[b / kDigits] = sums[b / kDigits] + Keep(touch, Vec(static_cast<float>(1 << b % kDigits)));
      });
      for (int k = 0; k < kLanes; ++k) blocks_of[first + k] = 0;
      for (int d = 0; d * kDigits < grid.count; ++d) {
        alignas(64) float digits[kLanes];
        sums[d].Store(digits);
        for (int k = 0; k < kLanes; ++k) {
          blocks_of[first + k] |= static_cast<Bits64>(static_cast<int32_t>(digits[k])) << d * kDigits;
        }
      }
    }
  }

 private:
  // What the blocks are found from, field by field; beyond `size` anything finite.
  alignas(64) float x[kBatch] = {}, y[kBatch] = {}, l21[kBatch] = {}, l22[kBatch] = {};
  alignas(64) float half_height[kBatch] = {}, shear_y[kBatch] = {}, inv_l11[kBatch] = {}, level[kBatch] = {};

  Bits64 LanesFrom(int first) const {
    return size - first >= kLanes ? (Bits64{1} << kLanes) - 1 : (Bits64{1} << (size - first)) - 1;
  }

  // Calls f(block, which of the splats [first, first + kLanes) touch it) for the blocks that any of them may touch.
  template <class F>
  JAXSPLAT_INLINE void ForEachBlock(const BlockGrid& grid, int first, const F& f) const {
    const Vec cx = Vec::Load(x + first), cy = Vec::Load(y + first), height = Vec::Load(half_height + first);
    const Vec margin(kExtentMargin);
    for (int row = 0; row < grid.side; ++row) {
      const Vec y0 = Vec(grid.y0 + static_cast<float>(row * kBlockSide)) - cy;
      const Vec y1 = y0 + Vec(kBlockSide - 1.0f);
      const Mask in_band = (y0 <= height + margin) & (Vec(0.0f) - height - margin <= y1);
      if (!Any(in_band)) continue;
      Vec left, right;
      BandExtent(height, Vec::Load(shear_y + first), Vec::Load(l21 + first), Vec::Load(l22 + first),
                 Vec::Load(inv_l11 + first), Vec::Load(level + first), y0, y1, &left, &right);
      left = left + cx - margin;
      right = right + cx + margin;
      for (int column = 0; column < grid.side; ++column) {
        const float x0 = grid.x0 + static_cast<float>(column * kBlockSide);
        f(row * grid.side + column, in_band & (Vec(x0) <= right) & (left <= Vec(x0 + (kBlockSide - 1.0f))));
      }
    }
  }
};

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CPU_TILE_BATCH_H_
