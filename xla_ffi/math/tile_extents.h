// Which tiles a splat touches, and the key by which depths are ordered.
#ifndef JAXSPLAT_MATH_TILE_EXTENTS_H_
#define JAXSPLAT_MATH_TILE_EXTENTS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/constants.h"
#include "math/gaussian_2d.h"
#include "ops/intersect_tiles.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// Smaller floats give smaller keys, negative ones included; no finite depth has the largest key.
JAXSPLAT_HD inline uint32_t DepthKey(float depth) {
  uint32_t bits;
  memcpy(&bits, &depth, sizeof(bits));
  if (depth == 0) bits = 0;  // -0 equals +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Tiles along one axis that the box mean +- radius overlaps, in an image `pixels` wide with `tiles` tiles.
JAXSPLAT_HD inline TileSpan BoxSpan(double mean, double radius, int64_t pixels, int64_t tiles, int64_t tile_size) {
  if (mean - radius >= static_cast<double>(pixels)) return {0, -1};  // the last tile may reach beyond the image
  const double side = static_cast<double>(tile_size), last = static_cast<double>(tiles);
  const double low = fmin(fmax(floor((mean - radius) / side), 0.0), last);
  const double high = fmin(fmax(ceil((mean + radius) / side), 0.0), last);
  return {static_cast<int32_t>(low), static_cast<int32_t>(high) - 1};
}

namespace JAXSPLAT_ISA {

// Tiles whose pixel centres come within [low, high], in an image `pixels` wide with `count` tiles.
struct TilesAlong {
  float size, inverse, last_pixel, count;
  JAXSPLAT_INLINE TilesAlong(int64_t tile_size, int64_t pixels, int64_t tiles)
      : size(static_cast<float>(tile_size)),
        inverse(1.0f / static_cast<float>(tile_size)),
        last_pixel(static_cast<float>(pixels) - 0.5f),
        count(static_cast<float>(tiles)) {}

  JAXSPLAT_INLINE TileSpan Between(float low, float high) const {
    if (!(low <= last_pixel) || !(high >= 0.5f)) return {0, -1};
    // Clamped in floating point first: a far splat must not overflow an integer.
    const float first = Min(Max((low - (size - 0.5f)) * inverse, 0.0f), count);
    const float last = Min((high - 0.5f) * inverse, count - 1.0f);
    return {static_cast<int32_t>(__builtin_ceilf(first)), static_cast<int32_t>(__builtin_floorf(last))};
  }
};

// Exact: a tile counts where the ellipse alpha >= alpha_min meets the rectangle of its pixel centres. First the rows of
// tiles, of which `rows` are all; then the tiles in one row, of which `columns` are all.
JAXSPLAT_INLINE TileRows RowsOf(const Gaussian2d& g, const TilesAlong& rows) {
  const float reach = g.half_height + kExtentMargin;
  const TileSpan span = rows.Between(g.y - reach, g.y + reach);
  return {span.x0, span.x1};
}

JAXSPLAT_INLINE TileSpan SpanOf(const Gaussian2d& g, const ImageGrid& grid, const TilesAlong& columns, int64_t row) {
  const int64_t left_over = grid.height - row * grid.tile_size;
  const int64_t pixels = left_over < grid.tile_size ? left_over : grid.tile_size;
  const float y0 = static_cast<float>(row * grid.tile_size) + 0.5f - g.y;
  float left, right;
  BandExtent(g.half_height, g.shear_y, g.l21, g.l22, g.inv_l11, g.level, y0, y0 + static_cast<float>(pixels - 1), &left,
             &right);
  return columns.Between(g.x + left - kExtentMargin, g.x + right + kExtentMargin);
}

}  // namespace JAXSPLAT_ISA
}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_TILE_EXTENTS_H_
