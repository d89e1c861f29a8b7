// Operands of many images, as kernels take them.
#ifndef JAXSPLAT_CUDA_BATCH_H_
#define JAXSPLAT_CUDA_BATCH_H_

#include <cstdint>

#include "core/host_device.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat::cuda {

// Leading axes of more than one element, outermost last, padded with ones: loops over all of them keep them in
// registers.
inline constexpr int kMaxAxes = 4;

struct ImageIndex {
  int64_t at[kMaxAxes];
};

struct ImageAxes {
  int64_t dims[kMaxAxes] = {1, 1, 1, 1};

  JAXSPLAT_HD ImageIndex Split(int64_t image) const {
    ImageIndex index;
#pragma unroll
    for (int k = 0; k < kMaxAxes; ++k) {
      index.at[k] = image % dims[k];
      image /= dims[k];
    }
    return index;
  }
};

// An array whose leading axes are those of the images, or shared (stride 0).
template <class T>
struct Batched {
  const T* data = nullptr;
  int64_t strides[kMaxAxes] = {};

  // First element of one image.
  JAXSPLAT_HD const T* At(const ImageIndex& index) const {
    int64_t offset = 0;
#pragma unroll
    for (int k = 0; k < kMaxAxes; ++k) offset += index.at[k] * strides[k];
    return data + offset;
  }
};

// Splats and rays of all images, as WorldSplats has those of one. No data where splats are evaluated on the screen.
struct WorldBatch {
  Batched<float> means, quats, scales, normals, rays;
};

// The splats of all images, as Splats2d has those of one.
struct SplatBatch {
  ImageAxes axes;
  int64_t images = 1, size = 0, channels = 0;
  Batched<float> means, conics, colors, opacities, depths;
  Batched<int32_t> radii;
  Batched<float> depth_limits;  // no data where there are none
  // Lists made by the caller.
  bool given_lists = false;
  Batched<int32_t> ids, offsets, counts;
  int64_t capacity = 0;
  // Of lists that are found, in each image: the farthest splats that do not fit are left out. 0: no limit.
  int64_t most_entries = 0;
  WorldBatch world;

  JAXSPLAT_HD bool AlongRays() const { return world.rays.data != nullptr; }
};

struct MaskBatch {
  Batched<bool> on;
  int64_t size = 1;
};

// Images that are worked on together.
struct Chunk {
  int64_t first, count;
};

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_BATCH_H_
