// XLA calls of the projection of 3D Gaussians by pinhole cameras.
#include "ops/project_gaussians.h"

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "ffi/images.h"
#include "ffi/operands.h"

namespace jaxsplat {
namespace {

constexpr int64_t kGrain = 2048, kMostChunks = 64;
constexpr int64_t kMostLanes = 16;

// The operands of both passes, checked.
struct Inputs {
  Images scenes;
  Operand<float> means, quats, scales, opacities, viewmats, Ks, limits;

  Inputs(const Images& leading, const F32& means_, const F32& quats_, const F32& scales_, const F32& opacities_,
         const F32& viewmats_, const F32& Ks_, const F32& limits_)
      : scenes(leading),
        means("means", means_.typed_data(), means_.dimensions(), 2, scenes),
        quats("quats", quats_.typed_data(), quats_.dimensions(), 2, scenes),
        scales("scales", scales_.typed_data(), scales_.dimensions(), 2, scenes),
        opacities("opacities", opacities_.typed_data(), opacities_.dimensions(), 1, scenes),
        viewmats("viewmats", viewmats_.typed_data(), viewmats_.dimensions(), 3, scenes),
        Ks("Ks", Ks_.typed_data(), Ks_.dimensions(), 3, scenes),
        limits("limits", limits_.typed_data(), limits_.dimensions(), 2, scenes) {
    const int64_t n = means.dim(0), cameras = viewmats.dim(0);
    means.Expect({n, 3});
    quats.Expect({n, 4});
    scales.Expect({n, 3});
    if (opacities.dim(0) != 0) opacities.Expect({n});
    viewmats.Expect({cameras, 4, 4});
    Ks.Expect({cameras, 3, 3});
    limits.Expect({cameras, 4});
  }

  Scene3d At(int64_t scene) const {
    return {viewmats.dim(0),    means.dim(0),     means.At(scene),
            quats.At(scene),    scales.At(scene), opacities.dim(0) != 0 ? opacities.At(scene) : nullptr,
            viewmats.At(scene), Ks.At(scene),     limits.At(scene)};
  }
};

ffi::Error Forward(ffi::ThreadPool threads, F32 means, F32 quats, F32 scales, F32 opacities, F32 viewmats, F32 Ks,
                   F32 limits, F32Result means2d, F32Result conics, F32Result depths, S32Result radii,
                   F32Result compensations, int64_t width, int64_t height, bool antialiased, double alpha_min,
                   double extent, double compensation_min, double clamp_margin, double norm_floor) {
  return Guard([&] {
    const Inputs in(Images(depths->dimensions(), 2), means, quats, scales, opacities, viewmats, Ks, limits);
    const ProjectionRule rule{width,  height,           antialiased,  alpha_min,
                              extent, compensation_min, clamp_margin, norm_floor};
    const int64_t rows = in.viewmats.dim(0) * in.means.dim(0);
    const Chunks chunks(in.means.dim(0), kGrain, kMostChunks);
    XlaPool pool(threads);
    ParallelFor(&pool, in.scenes.count() * chunks.count, [&](int64_t task) {
      const int64_t scene = task / chunks.count, chunk = task % chunks.count, at = scene * rows;
      BestKernels().project(in.At(scene), rule, chunks.begin(chunk), chunks.end(chunk),
                            {means2d->typed_data() + 2 * at, conics->typed_data() + 3 * at, depths->typed_data() + at,
                             radii->typed_data() + 2 * at, compensations->typed_data() + at});
    });
  });
}

ffi::Error Backward(ffi::ThreadPool threads, F32 means, F32 quats, F32 scales, F32 opacities, F32 viewmats, F32 Ks,
                    F32 limits, S32 radii, F32 v_means2d, F32 v_conics, F32 v_depths, F32 v_compensations,
                    F32Result v_means, F32Result v_quats, F32Result v_scales, F32Result v_viewmats, F32Result v_Ks,
                    F32Result v_eps2d, int64_t width, int64_t height, bool antialiased, double alpha_min, double extent,
                    double compensation_min, double clamp_margin, double norm_floor) {
  return Guard([&] {
    const Inputs in(Images(v_means->dimensions(), 2), means, quats, scales, opacities, viewmats, Ks, limits);
    const ProjectionRule rule{width,  height,           antialiased,  alpha_min,
                              extent, compensation_min, clamp_margin, norm_floor};
    const int64_t n = in.means.dim(0), cameras = in.viewmats.dim(0);
    const Operand<int32_t> r("radii", radii.typed_data(), radii.dimensions(), 3, in.scenes);
    const Operand<float> m("v_means2d", v_means2d.typed_data(), v_means2d.dimensions(), 3, in.scenes);
    const Operand<float> q("v_conics", v_conics.typed_data(), v_conics.dimensions(), 3, in.scenes);
    const Operand<float> d("v_depths", v_depths.typed_data(), v_depths.dimensions(), 2, in.scenes);
    const Operand<float> s("v_compensations", v_compensations.typed_data(), v_compensations.dimensions(), 2, in.scenes);
    r.Expect({cameras, n, 2});
    m.Expect({cameras, n, 2});
    q.Expect({cameras, n, 3});
    d.Expect({cameras, n});
    s.Expect({cameras, n});
    const Chunks chunks(n, kGrain, kMostChunks);
    const int64_t terms = cameras * kCameraTerms, scenes = in.scenes.count();
    Scratch scratch;
    auto* sums = scratch.Take<double>(scenes * chunks.count * terms);
    XlaPool pool(threads);
    ParallelFor(&pool, scenes * chunks.count, [&](int64_t task) {
      const int64_t scene = task / chunks.count, chunk = task % chunks.count;
      Scratch local;
      BestKernels().project_gradient(in.At(scene), rule,
                                     {r.At(scene), m.At(scene), q.At(scene), d.At(scene), s.At(scene)},
                                     chunks.begin(chunk), chunks.end(chunk), local.Take<float>(terms * kMostLanes),
                                     {v_means->typed_data() + scene * n * 3, v_quats->typed_data() + scene * n * 4,
                                      v_scales->typed_data() + scene * n * 3, sums + task * terms});
    });
    // In the order of the chunks, so that the bits do not depend on the threads.
    for (int64_t camera = 0; camera < scenes * cameras; ++camera) {
      const double* part = sums + camera / cameras * chunks.count * terms + camera % cameras * kCameraTerms;
      double total[kCameraTerms] = {};
      for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
        for (int k = 0; k < kCameraTerms; ++k) total[k] += part[chunk * terms + k];
      }
      float* view = v_viewmats->typed_data() + 16 * camera;
      float* k = v_Ks->typed_data() + 9 * camera;
      for (int i = 0; i < 16; ++i) view[i] = i < kViewTerms ? static_cast<float>(total[i]) : 0.0f;
      for (int i = 0; i < 9; ++i) k[i] = i < kIntrinsicTerms ? static_cast<float>(total[kViewTerms + i]) : 0.0f;
      v_eps2d->typed_data()[camera] = static_cast<float>(total[kCameraTerms - 1]);
    }
  });
}

auto Operands() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>();
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
using jaxsplat::S32;
namespace ffi = xla::ffi;

#define JAXSPLAT_PROJECTION_RULE()      \
  Attr<int64_t>("width")                \
      .Attr<int64_t>("height")          \
      .Attr<bool>("antialiased")        \
      .Attr<double>("alpha_min")        \
      .Attr<double>("extent")           \
      .Attr<double>("compensation_min") \
      .Attr<double>("clamp_margin")     \
      .Attr<double>("norm_floor")

JAXSPLAT_HANDLER(
    jaxsplat_project_gaussians, jaxsplat::Forward,
    jaxsplat::Operands().Ret<F32>().Ret<F32>().Ret<F32>().Ret<S32>().Ret<F32>().JAXSPLAT_PROJECTION_RULE());
JAXSPLAT_HANDLER(jaxsplat_project_gaussians_gradient, jaxsplat::Backward,
                 jaxsplat::Operands()
                     .Arg<S32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .JAXSPLAT_PROJECTION_RULE());
