// XLA calls of the rasterizer of meshes.
#include "cpu/rasterize_meshes.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "ffi/images.h"
#include "ffi/operands.h"

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

  MeshView Mesh(int64_t image) const {
    const int64_t begin = *first.At(image), size = *count.At(image);
    if (begin < 0 || size < 0 || begin + size > face_verts.dim(0)) {
      throw std::invalid_argument("first_faces and face_counts: faces [" + std::to_string(begin) + ", " +
                                  std::to_string(begin + size) + ") are not among the " +
                                  std::to_string(face_verts.dim(0)) + " given");
    }
    const float* limit = limits.At(image);
    if (!(limit[0] >= 0)) {
      throw std::invalid_argument("blur_radius must be at least 0, got " + std::to_string(limit[0]));
    }
    return {face_verts.At(image) + begin * 9,
            size,
            begin,
            neighbors.dim(0) != 0 ? neighbors.At(image) + begin : nullptr,
            limit[0],
            limit[1],
            limit[2],
            xs.At(image),
            ys.At(image)};
  }
};

ffi::Error Forward(ffi::ThreadPool threads, F32 face_verts, S32 first, S32 count, S32 neighbors, F32 limits, F32 xs,
                   F32 ys, S32Result faces, F32Result depths, F32Result bary, F32Result dists, int64_t tile_size,
                   bool perspective_correct, bool clip_barycentric_coords, bool cull_backfaces) {
  return Guard([&] {
    XlaPool pool(threads);
    const MeshInputs in(Images(faces->dimensions(), 3), tile_size, face_verts, first, count, neighbors, limits, xs, ys);
    const MeshRule rule{faces->dimensions().back(), perspective_correct, clip_barycentric_coords, cull_backfaces};
    const int64_t slots = in.grid.width * in.grid.height * rule.faces_per_pixel;
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      RasterizeMeshes(inner, in.grid, rule, in.Mesh(image),
                      {faces->typed_data() + image * slots, depths->typed_data() + image * slots,
                       bary->typed_data() + image * slots * 3, dists->typed_data() + image * slots});
    });
  });
}

// All faces count, whatever they hide: coordinates only decide the depths that the planes cut.
MeshRule SilhouetteRule(bool cull_backfaces) { return {1, true, true, cull_backfaces}; }

float Sigma(const Operand<float>& sigma, int64_t image) {
  const float value = *sigma.At(image);
  if (!(value > 0)) throw std::invalid_argument("sigma must be above 0, got " + std::to_string(value));
  return value;
}

ffi::Error SilhouettesForward(ffi::ThreadPool threads, F32 face_verts, S32 first, S32 count, S32 neighbors, F32 limits,
                              F32 xs, F32 ys, F32 sigma, F32Result transmittances, int64_t tile_size,
                              bool cull_backfaces) {
  return Guard([&] {
    XlaPool pool(threads);
    const MeshInputs in(Images(transmittances->dimensions(), 2), tile_size, face_verts, first, count, neighbors, limits,
                        xs, ys);
    const Operand<float> sigmas("sigma", sigma.typed_data(), sigma.dimensions(), 0, in.images);
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      RasterizeSilhouettes(inner, in.grid, SilhouetteRule(cull_backfaces), in.Mesh(image), Sigma(sigmas, image),
                           transmittances->typed_data() + image * in.grid.width * in.grid.height);
    });
  });
}

ffi::Error SilhouettesBackward(ffi::ThreadPool threads, F32 face_verts, S32 first, S32 count, S32 neighbors, F32 limits,
                               F32 xs, F32 ys, F32 sigma, F32 transmittances, F32 v_transmittances,
                               F32Result v_face_verts, int64_t tile_size, bool cull_backfaces) {
  return Guard([&] {
    XlaPool pool(threads);
    const MeshInputs in(Images(v_face_verts->dimensions(), 2), tile_size, face_verts, first, count, neighbors, limits,
                        xs, ys);
    const Operand<float> sigmas("sigma", sigma.typed_data(), sigma.dimensions(), 0, in.images);
    const Operand<float> t("transmittances", transmittances.typed_data(), transmittances.dimensions(), 2, in.images);
    const Operand<float> v("v_transmittances", v_transmittances.typed_data(), v_transmittances.dimensions(), 2,
                           in.images);
    t.Expect("transmittances", {in.grid.height, in.grid.width});
    v.Expect("v_transmittances", {in.grid.height, in.grid.width});
    std::fill_n(v_face_verts->typed_data(), v_face_verts->element_count(), 0.0f);
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      const MeshView mesh = in.Mesh(image);
      DifferentiateSilhouettes(inner, in.grid, SilhouetteRule(cull_backfaces), mesh, Sigma(sigmas, image), t.At(image),
                               v.At(image),
                               v_face_verts->typed_data() + (image * in.face_verts.dim(0) + mesh.first) * 9);
    });
  });
}

ffi::Error Backward(ffi::ThreadPool threads, F32 face_verts, S32 faces, F32 dists, F32 xs, F32 ys, F32 v_depths,
                    F32 v_bary, F32 v_dists, F32Result v_face_verts, bool perspective_correct,
                    bool clip_barycentric_coords) {
  return Guard([&] {
    XlaPool pool(threads);
    const Images images(v_face_verts->dimensions(), 2);
    const auto floats = [&](const char* name, const F32& buffer, size_t own) {
      return Operand<float>(name, buffer.typed_data(), buffer.dimensions(), own, images);
    };
    const Operand<float> verts = floats("face_verts", face_verts, 2), distances = floats("dists", dists, 4);
    const Operand<float> x = floats("xs", xs, 1), y = floats("ys", ys, 1), v_z = floats("v_depths", v_depths, 4);
    const Operand<float> v_b = floats("v_bary", v_bary, 5), v_d = floats("v_dists", v_dists, 4);
    const Operand<int32_t> ids("faces", faces.typed_data(), faces.dimensions(), 4, images);
    const int64_t count = ids.dim(0), height = ids.dim(1), width = ids.dim(2), slots = ids.dim(3);
    verts.Expect("face_verts", {verts.dim(0), 9});
    for (const auto* operand : {&distances, &v_z, &v_d}) operand->Expect("slots", {count, height, width, slots});
    v_b.Expect("v_bary", {count, height, width, slots, 3});
    ForEachImage(pool, images.count(), [&](Pool* inner, int64_t image) {
      DifferentiateMeshes(inner,
                          {{slots, perspective_correct, clip_barycentric_coords, false},
                           verts.At(image),
                           verts.dim(0),
                           count * height,
                           width,
                           height,
                           ids.At(image),
                           distances.At(image),
                           x.At(image),
                           y.At(image),
                           v_z.At(image),
                           v_b.At(image),
                           v_d.At(image)},
                          v_face_verts->typed_data() + image * verts.dim(0) * 9);
    });
  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
using jaxsplat::S32;
namespace ffi = xla::ffi;

#define JAXSPLAT_MESH() \
  ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Arg<S32>().Arg<S32>().Arg<S32>().Arg<F32>().Arg<F32>().Arg<F32>()

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
                     .Ctx<ffi::ThreadPool>()
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
