// Rasterizes the meshes of all images of a call on a CUDA device.
#ifndef JAXSPLAT_CUDA_RASTERIZE_MESHES_H_
#define JAXSPLAT_CUDA_RASTERIZE_MESHES_H_

#include "cuda/batch.h"
#include "cuda/device.h"
#include "ops/rasterize_gaussians_3d.h"
#include "ops/rasterize_meshes.h"

namespace jaxsplat::cuda {

// The meshes of all images, as MeshView has that of one.
struct MeshBatch {
  ImageAxes axes;
  int64_t images = 1, given = 0;  // faces that are given, of which each image takes its part
  int64_t size = 0;               // faces of the largest mesh of a chunk of images
  Batched<float> face_verts, limits, xs, ys;
  Batched<int32_t> first, count, neighbors;  // no neighbors where there are none
  Batched<float> sigma;                      // of silhouettes only

  JAXSPLAT_HD MeshView View(const ImageIndex& image) const {
    const int64_t begin = *first.At(image);
    const float* const limit = limits.At(image);
    return {face_verts.At(image) + begin * 9,
            *count.At(image),
            begin,
            neighbors.data != nullptr ? neighbors.At(image) + begin : nullptr,
            limit[0],
            limit[1],
            limit[2],
            xs.At(image),
            ys.At(image)};
  }
};

// As SlotsJob, of all images, each with a number of pictures.
struct SlotsBatch {
  ImageAxes axes;
  int64_t images = 1, faces_given = 0, pictures = 0, height = 0, width = 0;
  MeshRule rule;
  Batched<int32_t> faces;
  Batched<float> face_verts, dists, xs, ys, v_depths, v_bary, v_dists;

  JAXSPLAT_HD int64_t slots() const { return pictures * height * width * rule.faces_per_pixel; }
};

// What is written is that of all images, one after another. These throw std::invalid_argument for faces that are not
// given, for negative radii and sigmas, and for too many faces.
void RasterizeMeshes(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                     const FragmentArrays& out);

void RasterizeSilhouettes(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                          float* transmittances);
void DifferentiateSilhouettes(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                              const Batched<float>& transmittances, const Batched<float>& v_transmittances,
                              float* v_face_verts);

// Adds up the gradient of each face, always in the same order: no float is added atomically.
void DifferentiateMeshes(Device& device, const SlotsBatch& slots, float* v_face_verts);

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_RASTERIZE_MESHES_H_
