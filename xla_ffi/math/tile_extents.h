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

  // The first and the last of them, none if first > last.
  template <class T>
  JAXSPLAT_INLINE void Between(const T& low, const T& high, T* first, T* last) const {
    // Not yet integers: a far splat must not overflow one.
    *first = T(0.0f) - Floor(T(0.0f) - Min(Max((low - T(size - 0.5f)) * T(inverse), T(0.0f)), T(count)));
    const T limit = Floor(Min((high - T(0.5f)) * T(inverse), T(count - 1.0f)));
    *last = Select((low <= T(last_pixel)) & (T(0.5f) <= high), limit, T(-1.0f));
  }
};

// What the extent of one splat, or of a vector of them, is found from: fields of Gaussian2d.
template <class T>
struct Extent2d {
  T x, y, l21, l22, half_height, shear_y, inv_l11, level;
};

// Exact: a tile counts where the ellipse alpha >= alpha_min meets the rectangle of its pixel centres. First the rows of
// tiles; then the tiles in one row.
template <class T>
JAXSPLAT_INLINE void RowsOf(const T& y, const T& half_height, const TilesAlong& rows, T* first, T* last) {
  const T reach = half_height + T(kExtentMargin);
  rows.Between(y - reach, y + reach, first, last);
}

template <class T>
JAXSPLAT_INLINE void SpanOf(const Extent2d<T>& g, const TilesAlong& rows, const TilesAlong& columns, const T& row,
                            T* first, T* last) {
  const T top = row * T(rows.size);
  const T y0 = top + T(0.5f) - g.y, y1 = Min(top + T(rows.size - 0.5f), T(rows.last_pixel)) - g.y;
  T left, right;
  BandExtent(g.half_height, g.shear_y, g.l21, g.l22, g.inv_l11, g.level, y0, y1, &left, &right);
  columns.Between(g.x + left - T(kExtentMargin), g.x + right + T(kExtentMargin), first, last);
}

// The same for one splat, in integers.
JAXSPLAT_INLINE TileRows RowsOf(const Gaussian2d& g, const TilesAlong& rows) {
  float first, last;
  RowsOf(g.y, g.half_height, rows, &first, &last);
  return {static_cast<int32_t>(first), static_cast<int32_t>(last)};
}

JAXSPLAT_INLINE TileSpan SpanOf(const Gaussian2d& g, const TilesAlong& rows, const TilesAlong& columns, int32_t row) {
  const Extent2d<float> e{g.x, g.y, g.l21, g.l22, g.half_height, g.shear_y, g.inv_l11, g.level};
  float first, last;
  SpanOf(e, rows, columns, static_cast<float>(row), &first, &last);
  return {static_cast<int32_t>(first), static_cast<int32_t>(last)};
}

}  // namespace JAXSPLAT_ISA
}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_TILE_EXTENTS_H_
