// Which tiles a splat touches: exactly, by its ellipse, or by a box around its centre.
#ifndef JAXSPLAT_CPU_TILE_EXTENTS_H_
#define JAXSPLAT_CPU_TILE_EXTENTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/constants.h"
#include "cpu/tile_lists.h"
#include "math/gaussian_2d.h"

namespace jaxsplat {

// Both clamp in floating point first: a far splat must not overflow an integer.
inline int32_t CeilTo(float value, int64_t low, int64_t high) {
  return static_cast<int32_t>(std::ceil(std::clamp(value, static_cast<float>(low), static_cast<float>(high))));
}
inline int32_t FloorTo(float value, int64_t low, int64_t high) {
  return static_cast<int32_t>(std::floor(std::clamp(value, static_cast<float>(low), static_cast<float>(high))));
}

// Tiles [first, last] out of `count` whose pixel centres come within [low, high], in an image `pixels` wide.
struct TileRange {
  int32_t first, last;
};
inline TileRange TilesBetween(float low, float high, int64_t tile_size, int64_t pixels, int64_t count) {
  const float size = static_cast<float>(tile_size);
  if (!(low <= static_cast<float>(pixels) - 0.5f) || !(high >= 0.5f)) return {0, -1};
  return {CeilTo((low - (size - 0.5f)) / size, 0, count), FloorTo((high - 0.5f) / size, -1, count - 1)};
}

// Exact: a tile counts where the ellipse alpha >= alpha_min meets the rectangle of its pixel centres.
struct EllipseExtent {
  const Gaussian2d* splats;  // by rank
  ImageGrid grid;

  TileRows Rows(int64_t rank) const {
    const Gaussian2d& g = splats[rank];
    const float reach = g.half_height + kExtentMargin;
    const TileRange range = TilesBetween(g.y - reach, g.y + reach, grid.tile_size, grid.height, grid.tiles_y());
    return {range.first, range.last};
  }

  TileSpan Span(int64_t rank, int64_t row) const {
    const Gaussian2d& g = splats[rank];
    const float y0 = static_cast<float>(row * grid.tile_size) + 0.5f - g.y;
    const int64_t rows = std::min(grid.tile_size, grid.height - row * grid.tile_size);
    float left, right;
    JAXSPLAT_ISA::BandExtent(g.half_height, g.shear_y, g.l21, g.l22, g.inv_l11, g.level, y0,
                             y0 + static_cast<float>(rows - 1), &left, &right);
    const TileRange range = TilesBetween(g.x + left - kExtentMargin, g.x + right + kExtentMargin, grid.tile_size,
                                         grid.width, grid.tiles_x());
    return {range.first, range.last};
  }
};

// The tiles that the box mean +- radii overlaps, ids standing for ranks by `order`.
struct BoxExtent {
  const float* means;    // [N, 2]
  const int32_t* radii;  // [N, 2]
  const uint32_t* order;
  ImageGrid grid;

  TileRange Range(int64_t rank, int axis, int64_t count) const {
    const int64_t i = int64_t{order[rank]} * 2 + axis;
    const float size = static_cast<float>(grid.tile_size);
    const float radius = static_cast<float>(radii[i]);
    return {FloorTo((means[i] - radius) / size, 0, count), CeilTo((means[i] + radius) / size, 0, count) - 1};
  }
  TileRows Rows(int64_t rank) const {
    const TileRange range = Range(rank, 1, grid.tiles_y());
    return {range.first, range.last};
  }
  TileSpan Span(int64_t rank, int64_t) const {
    const TileRange range = Range(rank, 0, grid.tiles_x());
    return {range.first, range.last};
  }
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_EXTENTS_H_
