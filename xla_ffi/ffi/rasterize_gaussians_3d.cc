// XLA calls of the rasterizer of projected 3D Gaussians, for CPUs and for CUDA devices.
#include "ops/rasterize_gaussians_3d.h"

#include <cstdint>

#include "ffi/call.h"
#include "ffi/splats.h"
#include "ops/intersect_tiles.h"
#if !defined(JAXSPLAT_CUDA)
#include "ffi/contributors.h"
#endif

namespace jaxsplat {
namespace {

// The operands that all passes share.
struct Splats {
  Call& call;
  In<float> means{call, "means2d", {kAny, 2}};
  int64_t size = means.dim(0);
  In<float> conics{call, "conics", {size, 3}}, colors{call, "colors", {size, kAny}},
      opacities{call, "opacities", {size}};
  In<float> depths{call, "depths", {kAny}}, limits{call, "depth_limits", {kAny, kAny}};
  ListOperands lists{call};

  // The tiles of a picture. Throws unless the operands are for one of this size.
  ImageGrid GridOf(int64_t height, int64_t width, int64_t channels) const {
    const ImageGrid grid{width, height, lists.tile_size};
    colors.Expect({size, channels});
    if (limits.size() > 0) limits.Expect({height, width});
    if (!lists.given || limits.size() > 0) depths.Expect({size});
    lists.Check(grid, size);
    return grid;
  }

#if defined(JAXSPLAT_CUDA)
  cuda::SplatBatch Batch() const {
    cuda::SplatBatch batch;
    batch.axes = AxesOf(call.images());
    batch.images = call.images().count();
    batch.size = size;
    batch.channels = colors.dim(1);
    batch.means = BatchOf(means);
    batch.conics = BatchOf(conics);
    batch.colors = BatchOf(colors);
    batch.opacities = BatchOf(opacities);
    batch.depths = BatchOf(depths);
    if (limits.size() > 0) batch.depth_limits = BatchOf(limits);
    lists.AddTo(batch);
    return batch;
  }
#else
  Splats2d At(int64_t image) const {
    Splats2d s{};
    s.size = size;
    s.channels = colors.dim(1);
    s.means = means.At(image);
    s.conics = conics.At(image);
    s.colors = colors.At(image);
    s.opacities = opacities.At(image);
    s.depths = depths.At(image);
    if (limits.size() > 0) s.depth_limits = limits.At(image);
    lists.AddTo(s, image);
    return s;
  }
#endif
};

struct Forward {
  Call& call;
  PictureResults picture{call};
  Workspace workspace{call};
  Splats splats{call};
  BlendRule blend = TakeBlendRule(call);
  bool keep = call.Attribute<bool>("keep");
  ImageGrid grid = splats.GridOf(picture.colors.dim(0), picture.colors.dim(1), picture.colors.dim(2));

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    RunForward(executor, workspace, grid, blend, splats.Batch(), splats.lists, picture.At(0));
#else
    const int64_t images = call.images().count();
    ForEachImage(executor, images, [&](Pool* inner, int64_t image) {
      RasterizeForward(inner, grid, blend, splats.At(image), splats.lists.Mask(image),
                       keep && images <= kMostKeptImages, picture.At(image));
    });
#endif
  }
};

struct Backward {
  Call& call;
  Out<float> v_means{call, "v_means2d", 2}, v_conics{call, "v_conics", 2}, v_colors{call, "v_colors", 2};
  Out<float> v_opacities{call, "v_opacities", 1}, v_absgrads{call, "v_absgrads", 2};
  Workspace workspace{call};
  Splats splats{call};
  BlendRule blend = TakeBackwardBlendRule(call);
  // Under vmap any of these may be shared between images too.
  In<float> picture{call, "picture", {kAny, kAny, kAny}};
  int64_t height = picture.dim(0), width = picture.dim(1), channels = picture.dim(2);
  In<float> transmittances{call, "transmittances", {height, width}};
  In<float> v_picture{call, "v_picture", {height, width, channels}};
  In<float> v_transmittances{call, "v_transmittances", {height, width}};
  ImageGrid grid = splats.GridOf(height, width, channels);

  SplatGradient Gradient(int64_t image) const {
    return {v_means.At(image), v_conics.At(image), v_colors.At(image), v_opacities.At(image),
            v_absgrads.IfGiven(image)};
  }

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    workspace.Enter(executor);
    cuda::RasterizeBackward(executor, grid, blend, splats.Batch(), splats.lists.Mask(),
                            {BatchOf(picture), BatchOf(transmittances), BatchOf(v_picture), BatchOf(v_transmittances)},
                            Gradient(0));
    executor.Finish();
#else
    const int64_t images = call.images().count();
    ForEachImage(executor, images, [&](Pool* inner, int64_t image) {
      RasterizeBackward(inner, grid, blend, splats.At(image), splats.lists.Mask(image), images <= kMostKeptImages,
                        {picture.At(image), transmittances.At(image), v_picture.At(image), v_transmittances.At(image)},
                        Gradient(image));
    });
#endif
  }
};

struct Intersect {
  Call& call;
  Out<int32_t> gaussian_ids{call, "gaussian_ids", 1}, tile_offsets{call, "tile_offsets", 1};
  Out<int32_t> tiles_per_gaussian{call, "tiles_per_gaussian", 1}, count{call, "count", 0};
  In<float> means{call, "means2d", {kAny, 2}};
  int64_t size = means.dim(0), capacity = gaussian_ids.dim(0);
  In<int32_t> radii{call, "radii", {size, 2}};
  // What is not given has no rows.
  In<float> depths{call, "depths", {kAny}}, conics{call, "conics", {kAny, kAny}}, opacities{call, "opacities", {kAny}};
  ImageGrid grid{call.Attribute<int64_t>("width"), call.Attribute<int64_t>("height"),
                 call.Attribute<int64_t>("tile_size")};
  double alpha_min = call.Attribute<double>("alpha_min");

  bool Has(const Operand<float>& operand) const { return operand.dim(0) == size; }
  IntersectOutput Output(int64_t image) const {
    return {gaussian_ids.At(image), tile_offsets.At(image), tiles_per_gaussian.At(image), count.At(image)};
  }

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    cuda::SplatBatch batch;
    batch.axes = AxesOf(call.images());
    batch.images = call.images().count();
    batch.size = size;
    batch.means = BatchOf(means);
    batch.radii = BatchOf(radii);
    if (Has(depths)) batch.depths = BatchOf(depths);
    if (Has(conics)) batch.conics = BatchOf(conics);
    if (Has(opacities)) batch.opacities = BatchOf(opacities);
    cuda::IntersectTiles(executor, grid, batch, alpha_min, capacity, Output(0));
    executor.Finish();
#else
    ForEachImage(executor, call.images().count(), [&](Pool* inner, int64_t image) {
      const auto given = [&](const Operand<float>& operand) { return Has(operand) ? operand.At(image) : nullptr; };
      IntersectTiles(
          inner, grid,
          {size, means.At(image), radii.At(image), given(depths), given(conics), given(opacities), alpha_min, capacity},
          Output(image));
    });
#endif
  }
};

#if !defined(JAXSPLAT_CUDA)
struct Trace {
  Call& call;
  ContributorResults results{call};
  Splats splats{call};
  BlendRule blend = TakeBlendRule(call);
  ImageGrid grid = splats.GridOf(results.counts.dim(0), results.counts.dim(1), splats.colors.dim(1));

  void Run(Executor& executor) const {
    ForEachImage(executor, call.images().count(), [&](Pool* inner, int64_t image) {
      TraceContributors(inner, grid, blend, splats.At(image), splats.lists.Mask(image), results.At(image));
    });
  }
};
#endif

}  // namespace
}  // namespace jaxsplat

JAXSPLAT_OPS(jaxsplat_rasterize_gaussians_3d_forward, Forward);
JAXSPLAT_OPS(jaxsplat_rasterize_gaussians_3d_backward, Backward);
JAXSPLAT_OP(jaxsplat_intersect_tiles, Intersect);
#if !defined(JAXSPLAT_CUDA)
JAXSPLAT_OP(jaxsplat_trace_contributors, Trace);
#endif
