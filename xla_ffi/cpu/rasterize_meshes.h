// The rasterizer of meshes for one image.
#ifndef JAXSPLAT_CPU_RASTERIZE_MESHES_H_
#define JAXSPLAT_CPU_RASTERIZE_MESHES_H_

#include "cpu/parallel.h"
#include "ops/rasterize_gaussians_3d.h"
#include "ops/rasterize_meshes.h"

namespace jaxsplat {

// Tiles are shared by the pool's threads, if there is one. Throws std::invalid_argument for lists that are too long.
void RasterizeMeshes(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh,
                     const FragmentArrays& out);

// The part of each pixel that no face covers softly, [H, W], and the gradient of the corners [count, 3, 3].
void RasterizeSilhouettes(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh, float sigma,
                          float* transmittances);
void DifferentiateSilhouettes(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh,
                              float sigma, const float* transmittances, const float* v_transmittances,
                              float* v_face_verts);

// Adds up the gradient of each face [F, 3, 3] in the order of its slots, whatever the number of threads.
void DifferentiateMeshes(Pool* pool, const SlotsJob& job, float* v_face_verts);

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_RASTERIZE_MESHES_H_
