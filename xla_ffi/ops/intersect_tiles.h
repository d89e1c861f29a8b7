// Arguments of the tile intersection of one image.
#ifndef JAXSPLAT_OPS_INTERSECT_TILES_H_
#define JAXSPLAT_OPS_INTERSECT_TILES_H_

#include <cstdint>

namespace jaxsplat {

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

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_INTERSECT_TILES_H_
