// Which pixels of a tile see a face. Included by one source file per instruction set.
#ifndef JAXSPLAT_CPU_MESH_PIXELS_INC_H_
#define JAXSPLAT_CPU_MESH_PIXELS_INC_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/simd.h"
#include "cpu/mesh_kernels.h"
#include "cpu/tile_batch.h"
#include "math/triangle.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

JAXSPLAT_INLINE Vec VecOfBits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return Vec(value);
}

// The pixels of a tile, as blocks of 4x4 and groups of a vector's lanes.
class TilePixels {
 public:
  explicit TilePixels(const MeshTileJob& job) : width_(job.grid.width), height_(job.grid.height) {
    const int64_t size = job.grid.tile_size;
    side = static_cast<int>(size / kBlockSide);
    column = job.tile % job.grid.tiles_x() * size;
    row = job.tile / job.grid.tiles_x() * size;
    for (int64_t i = 0; i < size; ++i) {
      xs_[i] = job.mesh.xs[std::min(column + i, width_ - 1)];
      ys_[i] = job.mesh.ys[std::min(row + i, height_ - 1)];
    }
    for (int b = 0; b < side; ++b) {
      for (int i = 0; i < kBlockPixels; ++i) {
        x_[b][i] = xs_[b * kBlockSide + i % kBlockSide];
        y_[b][i] = ys_[b * kBlockSide + i / kBlockSide];
      }
    }
  }

  int side;
  int64_t column, row;

  JAXSPLAT_INLINE Vec X(int block_x, int group) const { return Vec::Load(x_[block_x] + group * kLanes); }
  JAXSPLAT_INLINE Vec Y(int block_y, int group) const { return Vec::Load(y_[block_y] + group * kLanes); }

  // Calls f(lane, pixel) for the pixels of a group that lie in the image.
  template <class F>
  JAXSPLAT_INLINE void ForEachPixel(int block_x, int block_y, int group, const F& f) const {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int i = group * kLanes + lane;
      const int64_t x = column + block_x * kBlockSide + i % kBlockSide;
      const int64_t y = row + block_y * kBlockSide + i / kBlockSide;
      if (x < width_ && y < height_) f(lane, y * width_ + x);
    }
  }

 private:
  static constexpr int kMaxSide = kMaxTileSize / kBlockSide;
  int64_t width_, height_;
  float xs_[kMaxTileSize], ys_[kMaxTileSize];
  alignas(64) float x_[kMaxSide][kBlockPixels], y_[kMaxSide][kBlockPixels];
};

// Calls f(block_x, block_y) for the blocks of a tile that a face may touch.
template <class F>
JAXSPLAT_INLINE void ForEachBlock(const MeshTileJob& job, const TilePixels& pixels, int64_t face, const F& f) {
  const PixelBox& box = job.boxes[face];
  const int last = pixels.side - 1;
  const auto block = [&](int64_t pixel, int64_t first) {
    return static_cast<int>(std::clamp<int64_t>((pixel - first) >> 2, 0, last));
  };
  static_assert(kBlockSide == 4, "a shift by 2 divides by the side of a block");
  const int x0 = block(box.x0, pixels.column), x1 = block(box.x1, pixels.column);
  const int y0 = block(box.y0, pixels.row), y1 = block(box.y1, pixels.row);
  if (x1 - x0 < 2 || y1 == y0) {
    for (int y = y0; y <= y1; ++y) {
      for (int x = x0; x <= x1; ++x) f(x, y);
    }
    return;
  }
  float corners[3][2];
  const float* v = job.mesh.face_verts + face * 9;
  const PixelScale& scale = job.scale;
  for (int i = 0; i < 3; ++i) {
    corners[i][0] = static_cast<float>((v[i * 3] - scale.x0) * scale.inv_x - static_cast<double>(pixels.column));
    corners[i][1] = static_cast<float>((v[i * 3 + 1] - scale.y0) * scale.inv_y - static_cast<double>(pixels.row));
  }
  const float radius = std::sqrt(job.mesh.blur_radius);
  const float radius_x = radius * static_cast<float>(std::abs(scale.inv_x));
  const float radius_y = radius * static_cast<float>(std::abs(scale.inv_y));
  for (int y = y0; y <= y1; ++y) {
    const auto top = static_cast<float>(y * kBlockSide);
    const ColumnSpan span = SpanInRows(corners, top, top + (kBlockSide - 1), radius_x, radius_y);
    const float side = kBlockSide, end = static_cast<float>(pixels.side);
    const int from = std::max(x0, static_cast<int>(std::clamp(std::floor(span.x0 / side), 0.0f, end)));
    const int to = std::min(x1, static_cast<int>(std::clamp(std::floor(span.x1 / side), -1.0f, end)));
    for (int x = from; x <= to; ++x) f(x, y);
  }
}

// Calls f(group, hit) for all groups of a tile that see a face; `group` counts blocks and groups within them.
template <bool kDistance, class F>
JAXSPLAT_INLINE void ForEachHit(const MeshTileJob& job, const TilePixels& pixels, int64_t face, int64_t neighbor,
                                const F& f) {
  const float* const corners = job.mesh.face_verts + face * 9;
  // Only read where there is a neighbour.
  const float* const half_corners = job.mesh.face_verts + (neighbor < 0 ? face : neighbor) * 9;
  const TriangleSetup triangle(corners), other(half_corners);
  ForEachBlock(job, pixels, face, [&](int block_x, int block_y) {
    for (int group = 0; group < kGroups; ++group) {
      const Vec x = pixels.X(block_x, group), y = pixels.Y(block_y, group);
      TriangleHit found = Hit<kDistance>(triangle, corners, job.rule, job.mesh, x, y);
      if (!Any(found.hit)) continue;
      if (kDistance && neighbor >= 0) {
        const TriangleHit half = Hit<true>(other, half_corners, job.rule, job.mesh, x, y);
        found.hit = found.hit & SeenBeside(found, half, neighbor < face);
      }
      f((block_y * pixels.side + block_x) * kGroups + group, x, y, found);
    }
  });
}

// The other half of a face if it may be seen, or -1.
int64_t NeighborOf(const MeshTileJob& job, int64_t face) {
  if (job.mesh.neighbors == nullptr) return -1;
  const int64_t neighbor = job.mesh.neighbors[face] - job.mesh.first;
  return neighbor < 0 || neighbor >= job.mesh.count || job.boxes[neighbor].x0 > job.boxes[neighbor].x1 ? -1 : neighbor;
}

}  // namespace

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CPU_MESH_PIXELS_INC_H_
