// What the innermost loops of the mesh rasterizer take.
#ifndef JAXSPLAT_CPU_MESH_KERNELS_H_
#define JAXSPLAT_CPU_MESH_KERNELS_H_

#include <cstdint>
#include <initializer_list>

#include "core/constants.h"
#include "cpu/tile_kernels.h"
#include "ops/rasterize_gaussians_3d.h"
#include "ops/rasterize_meshes.h"

namespace jaxsplat {

// The pixels [x0, x1] x [y0, y1] that a face may touch; none if x0 > x1.
struct PixelBox {
  int32_t x0, y0, x1, y1;
};

// From screen coordinates to columns and rows: column = (x - x0) inv_x.
struct PixelScale {
  double x0, inv_x, y0, inv_y;
};

// One tile of an image and the faces that may touch it, by index.
struct MeshTileJob {
  ImageGrid grid;
  MeshRule rule;
  MeshView mesh;
  PixelScale scale;
  const PixelBox* boxes;  // [F]
  int64_t tile;
  const TileEntry* entries;  // [size]
  int64_t size;
  float* scratch;  // [MeshScratchFloats(...)]
};

// Floats of an entry's slot of the gradient of a silhouette.
inline constexpr int64_t kSilhouetteSlot = 8;

// Depth and face of each slot of each pixel of a tile.
inline int64_t MeshScratchFloats(const ImageGrid& grid, int64_t faces_per_pixel) {
  return 2 * grid.tile_size * grid.tile_size * faces_per_pixel;
}

// The columns [x0, x1] of a triangle in the rows [y0, y1], widened by `radius_x` and `radius_y` and to either side by
// kExtentMargin. `corners` are x and y in columns and rows.
struct ColumnSpan {
  float x0, x1;
};
// Static, so that the linker does not merge what is compiled for different instruction sets.
static inline ColumnSpan SpanInRows(const float (&corners)[3][2], float y0, float y1, float radius_x, float radius_y) {
  const float low = y0 - radius_y - kExtentMargin, high = y1 + radius_y + kExtentMargin;
  ColumnSpan span{3e38f, -3e38f};
  const auto take = [&](float x) {
    span.x0 = x < span.x0 ? x : span.x0;
    span.x1 = x > span.x1 ? x : span.x1;
  };
  for (int i = 0; i < 3; ++i) {
    const float* a = corners[i];
    const float* b = corners[(i + 1) % 3];
    if (a[1] >= low && a[1] <= high) take(a[0]);
    for (const float edge : {low, high}) {
      if ((a[1] < edge) != (b[1] < edge)) take(a[0] + (edge - a[1]) / (b[1] - a[1]) * (b[0] - a[0]));
    }
  }
  // Rounding of a crossing grows with the coordinates.
  const float reach = (span.x0 < 0 ? -span.x0 : span.x0) + (span.x1 < 0 ? -span.x1 : span.x1);
  const float margin = radius_x + kExtentMargin + 1e-6f * reach;
  return {span.x0 - margin, span.x1 + margin};
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_MESH_KERNELS_H_
