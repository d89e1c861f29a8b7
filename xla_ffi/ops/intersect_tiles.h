// Arguments of the tile intersection of one image.
#ifndef JAXSPLAT_OPS_INTERSECT_TILES_H_
#define JAXSPLAT_OPS_INTERSECT_TILES_H_

#include <cstdint>
#include <stdexcept>
#include <string>

namespace jaxsplat {

// The tiles [x0, x1] of one row of tiles, none if x0 > x1; and the rows [y0, y1] that have tiles.
struct TileSpan {
  int32_t x0, x1;
};
struct TileRows {
  int32_t y0, y1;
};

struct IntersectInput {
  int64_t size;            // N
  const float* means;      // [N, 2]
  const int32_t* radii;    // [N, 2], 0 where culled
  const float* depths;     // [N], or null: order by id
  const float* conics;     // [N, 3], or null: boxes
  const float* opacities;  // [N], or null: boxes
  double alpha_min;
  int64_t capacity;  // M
};

struct IntersectOutput {
  int32_t* gaussian_ids;        // [M], -1 beyond the last
  int32_t* tile_offsets;        // [tiles + 1], at most M
  int32_t* tiles_per_gaussian;  // [N]
  int32_t* count;               // true number of intersections
};

// Throws if one image has too many.
inline void CheckEntries(int64_t entries) {
  if (entries <= INT32_MAX) return;
  throw std::invalid_argument("one image has " + std::to_string(entries) +
                              " tile intersections, more than the 2147483647 that its lists can hold; render it in "
                              "parts or with a larger tile_size");
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_INTERSECT_TILES_H_
