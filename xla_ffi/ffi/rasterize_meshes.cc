// XLA calls of the rasterizer of meshes, for CPUs and for CUDA devices.
#include "ops/rasterize_meshes.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "ffi/call.h"
#include "ops/rasterize_gaussians_3d.h"
#if defined(JAXSPLAT_CUDA)
#include "cuda/rasterize_meshes.h"
#else
#include "cpu/rasterize_meshes.h"
#endif

namespace jaxsplat {
namespace {

// The operands of all calls that find faces.
struct Meshes {
  Call& call;
  In<float> face_verts{call, "face_verts", {kAny, 9}};
  In<int32_t> first{call, "first_faces", {}}, count{call, "face_counts", {}}, neighbors{call, "neighbors", {kAny}};
  In<float> limits{call, "limits", {3}}, xs{call, "xs", {kAny}}, ys{call, "ys", {kAny}};
  ImageGrid grid{xs.dim(0), ys.dim(0), call.Attribute<int64_t>("tile_size")};
  bool has_neighbors = CheckNeighbors();

  bool CheckNeighbors() const {
    if (neighbors.dim(0) == 0) return false;
    neighbors.Expect({face_verts.dim(0)});
    return true;
  }

#if defined(JAXSPLAT_CUDA)
  cuda::MeshBatch Batch() const {
    cuda::MeshBatch batch;
    batch.axes = AxesOf(call.images());
    batch.images = call.images().count();
    batch.given = face_verts.dim(0);
    batch.face_verts = BatchOf(face_verts);
    batch.first = BatchOf(first);
    batch.count = BatchOf(count);
    if (has_neighbors) batch.neighbors = BatchOf(neighbors);
    batch.limits = BatchOf(limits);
    batch.xs = BatchOf(xs);
    batch.ys = BatchOf(ys);
    return batch;
  }
#else
  MeshView At(int64_t image) const {
    const int64_t begin = *first.At(image), size = *count.At(image);
    const float* limit = limits.At(image);
    CheckMesh(begin, size, face_verts.dim(0), limit[0]);
    return {face_verts.At(image) + begin * 9,
            size,
            begin,
            has_neighbors ? neighbors.At(image) + begin : nullptr,
            limit[0],
            limit[1],
            limit[2],
            xs.At(image),
            ys.At(image)};
  }
#endif
};

struct Forward {
  Call& call;
  Out<int32_t> faces{call, "faces", 3};
  Out<float> depths{call, "depths", 3}, bary{call, "bary", 4}, dists{call, "dists", 3};
  Meshes meshes{call};
  MeshRule rule{faces.dim(2), call.Attribute<bool>("perspective_correct"),
                call.Attribute<bool>("clip_barycentric_coords"), call.Attribute<bool>("cull_backfaces")};

  FragmentArrays Fragments(int64_t image) const {
    return {faces.At(image), depths.At(image), bary.At(image), dists.At(image)};
  }

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    cuda::RasterizeMeshes(executor, meshes.grid, rule, meshes.Batch(), Fragments(0));
    executor.Finish();
#else
    ForEachImage(executor, call.images().count(), [&](Pool* inner, int64_t image) {
      RasterizeMeshes(inner, meshes.grid, rule, meshes.At(image), Fragments(image));
    });
#endif
  }
};

struct Backward {
  Call& call;
  Out<float> v_face_verts{call, "v_face_verts", 2};
  In<float> face_verts{call, "face_verts", {kAny, 9}};
  In<int32_t> faces{call, "faces", {kAny, kAny, kAny, kAny}};
  int64_t pictures = faces.dim(0), height = faces.dim(1), width = faces.dim(2);
  MeshRule rule{faces.dim(3), call.Attribute<bool>("perspective_correct"),
                call.Attribute<bool>("clip_barycentric_coords"), false};
  In<float> dists{call, "dists", {pictures, height, width, rule.faces_per_pixel}};
  In<float> xs{call, "xs", {kAny}}, ys{call, "ys", {kAny}};
  In<float> v_depths{call, "v_depths", {pictures, height, width, rule.faces_per_pixel}};
  In<float> v_bary{call, "v_bary", {pictures, height, width, rule.faces_per_pixel, 3}};
  In<float> v_dists{call, "v_dists", {pictures, height, width, rule.faces_per_pixel}};

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    cuda::SlotsBatch slots;
    slots.axes = AxesOf(call.images());
    slots.images = call.images().count();
    slots.faces_given = face_verts.dim(0);
    slots.pictures = pictures;
    slots.height = height;
    slots.width = width;
    slots.rule = rule;
    slots.faces = BatchOf(faces);
    slots.face_verts = BatchOf(face_verts);
    slots.dists = BatchOf(dists);
    slots.xs = BatchOf(xs);
    slots.ys = BatchOf(ys);
    slots.v_depths = BatchOf(v_depths);
    slots.v_bary = BatchOf(v_bary);
    slots.v_dists = BatchOf(v_dists);
    cuda::DifferentiateMeshes(executor, slots, v_face_verts.At(0));
    executor.Finish();
#else
    ForEachImage(executor, call.images().count(), [&](Pool* inner, int64_t image) {
      DifferentiateMeshes(
          inner,
          {rule, face_verts.At(image), face_verts.dim(0), pictures * height, width, height, faces.At(image),
           dists.At(image), xs.At(image), ys.At(image), v_depths.At(image), v_bary.At(image), v_dists.At(image)},
          v_face_verts.At(image));
    });
#endif
  }
};

// What silhouettes take beside the faces.
struct Softness {
  Call& call;
  In<float> sigma{call, "sigma", {}};
  // All faces count, whatever they hide: coordinates only decide the depths that the planes cut.
  MeshRule rule{1, true, true, call.Attribute<bool>("cull_backfaces")};

#if defined(JAXSPLAT_CUDA)
  cuda::MeshBatch Of(cuda::MeshBatch meshes) const {
    meshes.sigma = BatchOf(sigma);
    return meshes;
  }
#else
  float At(int64_t image) const {
    CheckSigma(*sigma.At(image));
    return *sigma.At(image);
  }
#endif
};

struct SilhouettesForward {
  Call& call;
  Out<float> transmittances{call, "transmittances", 2};
  Meshes meshes{call};
  Softness soft{call};

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    cuda::RasterizeSilhouettes(executor, meshes.grid, soft.rule, soft.Of(meshes.Batch()), transmittances.At(0));
    executor.Finish();
#else
    ForEachImage(executor, call.images().count(), [&](Pool* inner, int64_t image) {
      RasterizeSilhouettes(inner, meshes.grid, soft.rule, meshes.At(image), soft.At(image), transmittances.At(image));
    });
#endif
  }
};

struct SilhouettesBackward {
  Call& call;
  Out<float> v_face_verts{call, "v_face_verts", 2};
  Meshes meshes{call};
  Softness soft{call};
  In<float> transmittances{call, "transmittances", {meshes.grid.height, meshes.grid.width}};
  In<float> v_transmittances{call, "v_transmittances", {meshes.grid.height, meshes.grid.width}};

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    cuda::DifferentiateSilhouettes(executor, meshes.grid, soft.rule, soft.Of(meshes.Batch()), BatchOf(transmittances),
                                   BatchOf(v_transmittances), v_face_verts.At(0));
    executor.Finish();
#else
    const int64_t images = call.images().count();
    std::fill_n(v_face_verts.At(0), images * v_face_verts.size(), 0.0f);
    ForEachImage(executor, images, [&](Pool* inner, int64_t image) {
      const MeshView mesh = meshes.At(image);
      DifferentiateSilhouettes(inner, meshes.grid, soft.rule, mesh, soft.At(image), transmittances.At(image),
                               v_transmittances.At(image), v_face_verts.At(image) + mesh.first * 9);
    });
#endif
  }
};

}  // namespace
}  // namespace jaxsplat

JAXSPLAT_OP(jaxsplat_rasterize_meshes_forward, Forward);
JAXSPLAT_OP(jaxsplat_rasterize_meshes_backward, Backward);
JAXSPLAT_OP(jaxsplat_rasterize_silhouettes_forward, SilhouettesForward);
JAXSPLAT_OP(jaxsplat_rasterize_silhouettes_backward, SilhouettesBackward);
