// Which pixels and tiles a face may touch.
#ifndef JAXSPLAT_MATH_FACE_EXTENTS_H_
#define JAXSPLAT_MATH_FACE_EXTENTS_H_

#include <cmath>
#include <cstdint>

#include "core/constants.h"
#include "core/simd.h"
#include "ops/intersect_tiles.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// The pixels [x0, x1] x [y0, y1] that a face may touch; none if x0 > x1.
struct PixelBox {
  int32_t x0, y0, x1, y1;
};

// From screen coordinates to columns and rows: column = (x - x0) inv_x.
struct PixelScale {
  double x0, inv_x, y0, inv_y;
};

namespace JAXSPLAT_ISA {

JAXSPLAT_INLINE double Clamp(double a, double low, double high) { return a < low ? low : a > high ? high : a; }
JAXSPLAT_INLINE float Clamp(float a, float low, float high) { return Max(low, Min(a, high)); }

// Of pixels whose centres are evenly spaced, ascending or descending.
JAXSPLAT_INLINE PixelScale ScaleOf(const ImageGrid& grid, const float* xs, const float* ys) {
  const auto step = [](const float* centres, int64_t size) {
    return size > 1 ? static_cast<double>(size - 1) / (static_cast<double>(centres[size - 1]) - centres[0]) : 0.0;
  };
  PixelScale scale{xs[0], step(xs, grid.width), ys[0], step(ys, grid.height)};
  // A single column or row has the other's spacing, or none: then everything may touch it.
  if (grid.width == 1) scale.inv_x = fabs(scale.inv_y);
  if (grid.height == 1) scale.inv_y = fabs(scale.inv_x);
  return scale;
}

struct PixelRange {
  int32_t first, last;
};

// The pixels in [0, size) whose centres lie within `radius` of [low, high].
JAXSPLAT_INLINE PixelRange PixelsWithin(float low, float high, double radius, double origin, double inverse,
                                        int64_t size) {
  if (inverse == 0) return {0, static_cast<int32_t>(size) - 1};
  const double a = (low - radius - origin) * inverse, b = (high + radius - origin) * inverse;
  const auto end = static_cast<double>(size);
  const double first = Clamp(ceil((inverse < 0 ? b : a) - kExtentMargin), 0.0, end);
  const double last = Clamp(floor((inverse < 0 ? a : b) + kExtentMargin), -1.0, end - 1);
  return {static_cast<int32_t>(first), static_cast<int32_t>(last)};
}

// Of the face with corners v [3, 3]; `radius` is how near a pixel has to come. Faces that are not drawn have none.
JAXSPLAT_INLINE PixelBox BoxOf(const ImageGrid& grid, bool cull_backfaces, const PixelScale& scale, double radius,
                               const float* v) {
  const float area = (v[6] - v[0]) * (v[4] - v[1]) - (v[7] - v[1]) * (v[3] - v[0]);
  const auto least = [&](int k) { return Min(Min(v[k], v[k + 3]), v[k + 6]); };
  const auto most = [&](int k) { return Max(Max(v[k], v[k + 3]), v[k + 6]); };
  float sum = area;
  for (int i = 0; i < 9; ++i) sum += v[i] * 0.0f;
  constexpr PixelBox kNoPixels{0, 0, -1, -1};
  // NaN, which is not equal to itself, unless all values are finite.
  if (!((sum > kTriangleEpsilon || sum < -kTriangleEpsilon) && sum - sum == 0 && least(2) >= kTriangleEpsilon)) {
    return kNoPixels;
  }
  if (cull_backfaces && area < 0) return kNoPixels;
  const PixelRange x = PixelsWithin(least(0), most(0), radius, scale.x0, scale.inv_x, grid.width);
  const PixelRange y = PixelsWithin(least(1), most(1), radius, scale.y0, scale.inv_y, grid.height);
  if (x.first > x.last || y.first > y.last) return kNoPixels;
  return {x.first, y.first, x.last, y.last};
}

// The columns [x0, x1] of a triangle in the rows [y0, y1], widened by `radius_x` and `radius_y` and to either side by
// kExtentMargin. `corners` are x and y in columns and rows.
struct ColumnSpan {
  float x0, x1;
};
JAXSPLAT_INLINE ColumnSpan SpanInRows(const float (&corners)[3][2], float y0, float y1, float radius_x,
                                      float radius_y) {
  const float low = y0 - radius_y - kExtentMargin, high = y1 + radius_y + kExtentMargin;
  ColumnSpan span{3e38f, -3e38f};
  const auto take = [&](float x) {
    span.x0 = x < span.x0 ? x : span.x0;
    span.x1 = x > span.x1 ? x : span.x1;
  };
  const auto cross = [&](const float* a, const float* b, float edge) {
    if ((a[1] < edge) != (b[1] < edge)) take(a[0] + (edge - a[1]) / (b[1] - a[1]) * (b[0] - a[0]));
  };
  for (int i = 0; i < 3; ++i) {
    const float* a = corners[i];
    const float* b = corners[(i + 1) % 3];
    if (a[1] >= low && a[1] <= high) take(a[0]);
    cross(a, b, low);
    cross(a, b, high);
  }
  // Rounding of a crossing grows with the coordinates.
  const float reach = (span.x0 < 0 ? -span.x0 : span.x0) + (span.x1 < 0 ? -span.x1 : span.x1);
  const float margin = radius_x + kExtentMargin + 1e-6f * reach;
  return {span.x0 - margin, span.x1 + margin};
}

// The tiles that a face may touch, which lie in its box.
class FaceTiles {
 public:
  TileRows rows;

  JAXSPLAT_INLINE FaceTiles(const ImageGrid& grid, const PixelScale& scale, double radius, const float* v,
                            const PixelBox& box)
      : side_(static_cast<int32_t>(grid.tile_size)), width_(static_cast<float>(grid.width)) {
    all_ = {box.x0 / side_, box.x1 / side_};
    rows = {box.y0 / side_, box.y1 / side_};
    exact_ = all_.x1 - all_.x0 >= 2 && rows.y0 != rows.y1;
    if (!exact_) return;
    for (int i = 0; i < 3; ++i) {
      corners_[i][0] = static_cast<float>((v[i * 3] - scale.x0) * scale.inv_x);
      corners_[i][1] = static_cast<float>((v[i * 3 + 1] - scale.y0) * scale.inv_y);
    }
    radius_x_ = static_cast<float>(radius * fabs(scale.inv_x));
    radius_y_ = static_cast<float>(radius * fabs(scale.inv_y));
  }

  // Those in row y of tiles.
  JAXSPLAT_INLINE TileSpan Span(int32_t y) const {
    if (!exact_) return all_;
    const auto top = static_cast<float>(y * side_);
    const ColumnSpan span = SpanInRows(corners_, top, top + static_cast<float>(side_ - 1), radius_x_, radius_y_);
    const int32_t first = Tile(span.x0), last = Tile(span.x1);
    return {first > all_.x0 ? first : all_.x0, last < all_.x1 ? last : all_.x1};
  }

 private:
  JAXSPLAT_INLINE int32_t Tile(float x) const {
    return static_cast<int32_t>(Floor(Clamp(x, -1.0f, width_) / static_cast<float>(side_)));
  }

  int32_t side_;
  float width_;
  TileSpan all_;
  bool exact_;
  float corners_[3][2], radius_x_, radius_y_;
};

}  // namespace JAXSPLAT_ISA
}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_FACE_EXTENTS_H_
