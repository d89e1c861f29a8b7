// XLA calls of the rasterizer of meshes, for CPUs and for CUDA devices.
#include "ops/rasterize_meshes.h"

#include <algorithm>
#include <cstdint>

#include "ffi/executor.h"
#include "ffi/operands.h"
#include "ops/rasterize_gaussians_3d.h"
#if defined(JAXSPLAT_CUDA)
#include "cuda/rasterize_meshes.h"
#else
#include "cpu/rasterize_meshes.h"
#endif

namespace jaxsplat {
namespace {

// The operands that all calls share.
struct MeshInputs {
  Images images;
  ImageGrid grid;
  Operand<float> face_verts, limits, xs, ys;
  Operand<int32_t> first, count, neighbors;

  MeshInputs(const Images& result_images, int64_t tile_size, const F32& face_verts_, const S32& first_,
             const S32& count_, const S32& neighbors_, const F32& limits_, const F32& xs_, const F32& ys_)
      : images(result_images),
        grid{xs_.dimensions().back(), ys_.dimensions().back(), tile_size},
        face_verts("face_verts", face_verts_.typed_data(), face_verts_.dimensions(), 2, images),
        limits("limits", limits_.typed_data(), limits_.dimensions(), 1, images),
        xs("xs", xs_.typed_data(), xs_.dimensions(), 1, images),
        ys("ys", ys_.typed_data(), ys_.dimensions(), 1, images),
        first("first_faces", first_.typed_data(), first_.dimensions(), 0, images),
        count("face_counts", count_.typed_data(), count_.dimensions(), 0, images),
        neighbors("neighbors", neighbors_.typed_data(), neighbors_.dimensions(), 1, images) {
    face_verts.Expect("face_verts", {face_verts.dim(0), 9});
    limits.Expect("limits", {3});
    if (neighbors.dim(0) != 0) neighbors.Expect("neighbors", {face_verts.dim(0)});
  }
};

// The operands of silhouettes besides, and of their backward pass.
struct SilhouetteInputs : MeshInputs {
  Operand<float> sigma;

  SilhouetteInputs(const MeshInputs& mesh, const F32& sigma_)
      : MeshInputs(mesh), sigma("sigma", sigma_.typed_data(), sigma_.dimensions(), 0, images) {}

  Operand<float> Picture(const char* name, const F32& buffer) const {
    const Operand<float> picture(name, buffer.typed_data(), buffer.dimensions(), 2, images);
    picture.Expect(name, {grid.height, grid.width});
    return picture;
  }
};

// Those of the backward pass of fragments.
struct SlotInputs {
  Images images;
  MeshRule rule;
  Operand<float> face_verts, dists, xs, ys, v_depths, v_bary, v_dists;
  Operand<int32_t> faces;

  SlotInputs(const Images& result_images, bool perspective_correct, bool clip_barycentric_coords,
             const F32& face_verts_, const S32& faces_, const F32& dists_, const F32& xs_, const F32& ys_,
             const F32& v_depths_, const F32& v_bary_, const F32& v_dists_)
      : images(result_images),
        rule{faces_.dimensions().back(), perspective_correct, clip_barycentric_coords, false},
        face_verts("face_verts", face_verts_.typed_data(), face_verts_.dimensions(), 2, images),
        dists("dists", dists_.typed_data(), dists_.dimensions(), 4, images),
        xs("xs", xs_.typed_data(), xs_.dimensions(), 1, images),
        ys("ys", ys_.typed_data(), ys_.dimensions(), 1, images),
        v_depths("v_depths", v_depths_.typed_data(), v_depths_.dimensions(), 4, images),
        v_bary("v_bary", v_bary_.typed_data(), v_bary_.dimensions(), 5, images),
        v_dists("v_dists", v_dists_.typed_data(), v_dists_.dimensions(), 4, images),
        faces("faces", faces_.typed_data(), faces_.dimensions(), 4, images) {
    face_verts.Expect("face_verts", {face_verts.dim(0), 9});
    for (const auto* operand : {&dists, &v_depths, &v_dists}) {
      operand->Expect("slots", {pictures(), height(), width(), rule.faces_per_pixel});
    }
    v_bary.Expect("v_bary", {pictures(), height(), width(), rule.faces_per_pixel, 3});
  }

  int64_t pictures() const { return faces.dim(0); }
  int64_t height() const { return faces.dim(1); }
  int64_t width() const { return faces.dim(2); }
};

// All faces count, whatever they hide: coordinates only decide the depths that the planes cut.
MeshRule SilhouetteRule(bool cull_backfaces) { return {1, true, true, cull_backfaces}; }

#if defined(JAXSPLAT_CUDA)

cuda::MeshBatch Batch(const MeshInputs& in) {
  cuda::MeshBatch batch;
  batch.axes = AxesOf(in.images);
  batch.images = in.images.count();
  batch.given = in.face_verts.dim(0);
  batch.face_verts = BatchOf(in.face_verts, in.images);
  batch.first = BatchOf(in.first, in.images);
  batch.count = BatchOf(in.count, in.images);
  if (in.neighbors.dim(0) != 0) batch.neighbors = BatchOf(in.neighbors, in.images);
  batch.limits = BatchOf(in.limits, in.images);
  batch.xs = BatchOf(in.xs, in.images);
  batch.ys = BatchOf(in.ys, in.images);
  return batch;
}

cuda::MeshBatch Batch(const SilhouetteInputs& in) {
  cuda::MeshBatch batch = Batch(static_cast<const MeshInputs&>(in));
  batch.sigma = BatchOf(in.sigma, in.images);
  return batch;
}

void RunForward(Executor& executor, const MeshInputs& in, const MeshRule& rule, const FragmentArrays& out) {
  cuda::RasterizeMeshes(executor, in.grid, rule, Batch(in), out);
  executor.Finish();
}

void RunSilhouettes(Executor& executor, const SilhouetteInputs& in, const MeshRule& rule, float* transmittances) {
  cuda::RasterizeSilhouettes(executor, in.grid, rule, Batch(in), transmittances);
  executor.Finish();
}

void RunSilhouettesBackward(Executor& executor, const SilhouetteInputs& in, const MeshRule& rule,
                            const Operand<float>& t, const Operand<float>& v, float* v_face_verts) {
  cuda::DifferentiateSilhouettes(executor, in.grid, rule, Batch(in), BatchOf(t, in.images), BatchOf(v, in.images),
                                 v_face_verts);
  executor.Finish();
}

void RunBackward(Executor& executor, const SlotInputs& in, float* v_face_verts) {
  cuda::SlotsBatch slots;
  slots.axes = AxesOf(in.images);
  slots.images = in.images.count();
  slots.faces_given = in.face_verts.dim(0);
  slots.pictures = in.pictures();
  slots.height = in.height();
  slots.width = in.width();
  slots.rule = in.rule;
  slots.faces = BatchOf(in.faces, in.images);
  slots.face_verts = BatchOf(in.face_verts, in.images);
  slots.dists = BatchOf(in.dists, in.images);
  slots.xs = BatchOf(in.xs, in.images);
  slots.ys = BatchOf(in.ys, in.images);
  slots.v_depths = BatchOf(in.v_depths, in.images);
  slots.v_bary = BatchOf(in.v_bary, in.images);
  slots.v_dists = BatchOf(in.v_dists, in.images);
  cuda::DifferentiateMeshes(executor, slots, v_face_verts);
  executor.Finish();
}

#else

MeshView Mesh(const MeshInputs& in, int64_t image) {
  const int64_t begin = *in.first.At(image), size = *in.count.At(image);
  const float* limit = in.limits.At(image);
  CheckMesh(begin, size, in.face_verts.dim(0), limit[0]);
  return {in.face_verts.At(image) + begin * 9,
          size,
          begin,
          in.neighbors.dim(0) != 0 ? in.neighbors.At(image) + begin : nullptr,
          limit[0],
          limit[1],
          limit[2],
          in.xs.At(image),
          in.ys.At(image)};
}

float Sigma(const SilhouetteInputs& in, int64_t image) {
  CheckSigma(*in.sigma.At(image));
  return *in.sigma.At(image);
}

void RunForward(Executor& executor, const MeshInputs& in, const MeshRule& rule, const FragmentArrays& out) {
  const int64_t slots = in.grid.width * in.grid.height * rule.faces_per_pixel;
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    RasterizeMeshes(inner, in.grid, rule, Mesh(in, image),
                    {out.faces + image * slots, out.depths + image * slots, out.bary + image * slots * 3,
                     out.dists + image * slots});
  });
}

void RunSilhouettes(Executor& executor, const SilhouetteInputs& in, const MeshRule& rule, float* transmittances) {
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    RasterizeSilhouettes(inner, in.grid, rule, Mesh(in, image), Sigma(in, image),
                         transmittances + image * in.grid.width * in.grid.height);
  });
}

void RunSilhouettesBackward(Executor& executor, const SilhouetteInputs& in, const MeshRule& rule,
                            const Operand<float>& t, const Operand<float>& v, float* v_face_verts) {
  std::fill_n(v_face_verts, in.images.count() * in.face_verts.size(), 0.0f);
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    const MeshView mesh = Mesh(in, image);
    DifferentiateSilhouettes(inner, in.grid, rule, mesh, Sigma(in, image), t.At(image), v.At(image),
                             v_face_verts + image * in.face_verts.size() + mesh.first * 9);
  });
}

void RunBackward(Executor& executor, const SlotInputs& in, float* v_face_verts) {
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    DifferentiateMeshes(inner,
                        {in.rule, in.face_verts.At(image), in.face_verts.dim(0), in.pictures() * in.height(),
                         in.width(), in.height(), in.faces.At(image), in.dists.At(image), in.xs.At(image),
                         in.ys.At(image), in.v_depths.At(image), in.v_bary.At(image), in.v_dists.At(image)},
                        v_face_verts + image * in.face_verts.size());
  });
}

#endif

ffi::Error Forward(Executor executor, F32 face_verts, S32 first, S32 count, S32 neighbors, F32 limits, F32 xs, F32 ys,
                   S32Result faces, F32Result depths, F32Result bary, F32Result dists, int64_t tile_size,
                   bool perspective_correct, bool clip_barycentric_coords, bool cull_backfaces) {
  return Guard([&] {
    const MeshInputs in(Images(faces->dimensions(), 3), tile_size, face_verts, first, count, neighbors, limits, xs, ys);
    RunForward(executor, in, {faces->dimensions().back(), perspective_correct, clip_barycentric_coords, cull_backfaces},
               {faces->typed_data(), depths->typed_data(), bary->typed_data(), dists->typed_data()});
  });
}

ffi::Error SilhouettesForward(Executor executor, F32 face_verts, S32 first, S32 count, S32 neighbors, F32 limits,
                              F32 xs, F32 ys, F32 sigma, F32Result transmittances, int64_t tile_size,
                              bool cull_backfaces) {
  return Guard([&] {
    const MeshInputs in(Images(transmittances->dimensions(), 2), tile_size, face_verts, first, count, neighbors, limits,
                        xs, ys);
    RunSilhouettes(executor, SilhouetteInputs(in, sigma), SilhouetteRule(cull_backfaces), transmittances->typed_data());
  });
}

ffi::Error SilhouettesBackward(Executor executor, F32 face_verts, S32 first, S32 count, S32 neighbors, F32 limits,
                               F32 xs, F32 ys, F32 sigma, F32 transmittances, F32 v_transmittances,
                               F32Result v_face_verts, int64_t tile_size, bool cull_backfaces) {
  return Guard([&] {
    const MeshInputs mesh(Images(v_face_verts->dimensions(), 2), tile_size, face_verts, first, count, neighbors, limits,
                          xs, ys);
    const SilhouetteInputs in(mesh, sigma);
    RunSilhouettesBackward(executor, in, SilhouetteRule(cull_backfaces), in.Picture("transmittances", transmittances),
                           in.Picture("v_transmittances", v_transmittances), v_face_verts->typed_data());
  });
}

ffi::Error Backward(Executor executor, F32 face_verts, S32 faces, F32 dists, F32 xs, F32 ys, F32 v_depths, F32 v_bary,
                    F32 v_dists, F32Result v_face_verts, bool perspective_correct, bool clip_barycentric_coords) {
  return Guard([&] {
    const SlotInputs in(Images(v_face_verts->dimensions(), 2), perspective_correct, clip_barycentric_coords, face_verts,
                        faces, dists, xs, ys, v_depths, v_bary, v_dists);
    RunBackward(executor, in, v_face_verts->typed_data());
  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
using jaxsplat::S32;
namespace ffi = xla::ffi;

#define JAXSPLAT_MESH()          \
  ffi::Ffi::Bind()               \
      .Ctx<jaxsplat::Executor>() \
      .Arg<F32>()                \
      .Arg<S32>()                \
      .Arg<S32>()                \
      .Arg<S32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()

JAXSPLAT_HANDLER(jaxsplat_rasterize_meshes_forward, jaxsplat::Forward,
                 JAXSPLAT_MESH()
                     .Ret<S32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Attr<int64_t>("tile_size")
                     .Attr<bool>("perspective_correct")
                     .Attr<bool>("clip_barycentric_coords")
                     .Attr<bool>("cull_backfaces"));
JAXSPLAT_HANDLER(jaxsplat_rasterize_silhouettes_forward, jaxsplat::SilhouettesForward,
                 JAXSPLAT_MESH().Arg<F32>().Ret<F32>().Attr<int64_t>("tile_size").Attr<bool>("cull_backfaces"));
JAXSPLAT_HANDLER(jaxsplat_rasterize_silhouettes_backward, jaxsplat::SilhouettesBackward,
                 JAXSPLAT_MESH()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Ret<F32>()
                     .Attr<int64_t>("tile_size")
                     .Attr<bool>("cull_backfaces"));
JAXSPLAT_HANDLER(jaxsplat_rasterize_meshes_backward, jaxsplat::Backward,
                 ffi::Ffi::Bind()
                     .Ctx<jaxsplat::Executor>()
                     .Arg<F32>()
                     .Arg<S32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Ret<F32>()
                     .Attr<bool>("perspective_correct")
                     .Attr<bool>("clip_barycentric_coords"));
