// What the innermost loops of the mesh rasterizer take.
#ifndef JAXSPLAT_CPU_MESH_KERNELS_H_
#define JAXSPLAT_CPU_MESH_KERNELS_H_

#include <cstdint>

#include "cpu/tile_kernels.h"
#include "math/face_extents.h"
#include "ops/rasterize_gaussians_3d.h"
#include "ops/rasterize_meshes.h"

namespace jaxsplat {

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

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_MESH_KERNELS_H_
