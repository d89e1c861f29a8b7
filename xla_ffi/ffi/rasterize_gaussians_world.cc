// XLA calls of the rasterizer of 3D Gaussians along rays, for CPUs and for CUDA devices.
#include <cstdint>

#include "ffi/call.h"
#include "ffi/splats.h"
#include "ops/rasterize_gaussians_3d.h"
#if !defined(JAXSPLAT_CUDA)
#include "ffi/contributors.h"
#endif

namespace jaxsplat {
namespace {

// The operands that all passes share.
struct Splats {
  Call& call;
  bool hits;
  In<float> means{call, "means", {kAny, 3}};
  int64_t size = means.dim(0);
  In<float> quats{call, "quats", {size, 4}}, scales{call, "scales", {size, 3}}, opacities{call, "opacities", {size}};
  In<float> colors{call, "colors", {size, kAny}}, normals{call, "normals", {hits ? size : kAny, hits ? 3 : kAny}};
  In<float> rays{call, "rays", {kAny, kAny, 6}};
  int64_t height = rays.dim(0), width = rays.dim(1), channels = colors.dim(1);
  // Where splats are seen, which given lists know.
  In<float> means2d{call, "means2d", {kAny, kAny}}, conics{call, "conics", {kAny, kAny}};
  In<float> depths{call, "depths", {kAny}}, limits{call, "depth_limit", {kAny, kAny}};
  ListOperands lists{call};
  ImageGrid grid = CheckedGrid();

  ImageGrid CheckedGrid() const {
    const ImageGrid tiles{width, height, lists.tile_size};
    if (limits.size() > 0) limits.Expect({height, width});
    if (!lists.given) {
      means2d.Expect({size, 2});
      conics.Expect({size, 3});
      depths.Expect({size});
    }
    lists.Check(tiles, size);
    return tiles;
  }

#if defined(JAXSPLAT_CUDA)
  cuda::SplatBatch Batch() const {
    cuda::SplatBatch batch;
    batch.axes = AxesOf(call.images());
    batch.images = call.images().count();
    batch.size = size;
    batch.channels = channels;
    batch.colors = BatchOf(colors);
    batch.opacities = BatchOf(opacities);
    batch.world.means = BatchOf(means);
    batch.world.quats = BatchOf(quats);
    batch.world.scales = BatchOf(scales);
    if (hits) batch.world.normals = BatchOf(normals);
    batch.world.rays = BatchOf(rays);
    lists.AddTo(batch);
    if (lists.given) return batch;
    batch.means = BatchOf(means2d);
    batch.conics = BatchOf(conics);
    batch.depths = BatchOf(depths);
    if (limits.size() > 0) batch.depth_limits = BatchOf(limits);
    return batch;
  }
#else
  WorldSplats World(int64_t image) const {
    return {means.At(image), quats.At(image), scales.At(image), hits ? normals.At(image) : nullptr, rays.At(image)};
  }

  // `world` is that of the image, and must outlive what is returned.
  Splats2d At(int64_t image, const WorldSplats& world) const {
    Splats2d s{};
    s.size = size;
    s.channels = channels;
    s.colors = colors.At(image);
    s.opacities = opacities.At(image);
    s.world = &world;
    lists.AddTo(s, image);
    if (lists.given) return s;
    s.means = means2d.At(image);
    s.conics = conics.At(image);
    s.depths = depths.At(image);
    if (limits.size() > 0) s.depth_limits = limits.At(image);
    return s;
  }
#endif
};

struct Forward {
  Call& call;
  PictureResults picture{call};
  Out<float> hit_sums{call, "hits", 3};
  Workspace workspace{call};
  bool hits = call.Attribute<bool>("hits");
  Splats splats{call, hits};
  BlendRule blend = TakeBlendRule(call);
  bool keep = call.Attribute<bool>("keep");

  Picture PictureAt(int64_t image) const { return picture.At(image, hits ? hit_sums.At(image) : nullptr); }

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    RunForward(executor, workspace, splats.grid, blend, splats.Batch(), splats.lists, PictureAt(0));
#else
    const int64_t images = call.images().count();
    ForEachImage(executor, images, [&](Pool* inner, int64_t image) {
      const WorldSplats world = splats.World(image);
      RasterizeForward(inner, splats.grid, blend, splats.At(image, world), splats.lists.Mask(image),
                       keep && images <= kMostKeptImages, PictureAt(image));
    });
#endif
  }
};

struct Backward {
  Call& call;
  Out<float> v_means{call, "v_means", 2}, v_quats{call, "v_quats", 2}, v_scales{call, "v_scales", 2};
  Out<float> v_opacities{call, "v_opacities", 1}, v_colors{call, "v_colors", 2};
  Out<float> v_normals{call, "v_normals", 2}, v_rays{call, "v_rays", 3};
  Workspace workspace{call};
  bool hits = call.Attribute<bool>("hits");
  Splats splats{call, hits};
  BlendRule blend = TakeBackwardBlendRule(call);
  int64_t height = splats.height, width = splats.width, channels = splats.channels;
  int64_t hit_rows = hits ? height : 0, hit_columns = hits ? width : 0;
  // Under vmap any of these may be shared between images too.
  In<float> picture{call, "picture", {height, width, channels}};
  In<float> transmittances{call, "transmittances", {height, width}};
  In<float> hit_sums{call, "hits", {hit_rows, hit_columns, kHitChannels}};
  In<float> v_picture{call, "v_picture", {height, width, channels}};
  In<float> v_transmittances{call, "v_transmittances", {height, width}};
  In<float> v_hit_sums{call, "v_hits", {hit_rows, hit_columns, kHitChannels}};

  WorldGradient Gradient(int64_t image) const {
    return {v_means.At(image), v_quats.At(image), v_scales.At(image), hits ? v_normals.At(image) : nullptr,
            v_rays.IfGiven(image)};
  }

  void Run(Executor& executor) const {
#if defined(JAXSPLAT_CUDA)
    workspace.Enter(executor);
    cuda::PictureGradientBatch pictures{BatchOf(picture), BatchOf(transmittances), BatchOf(v_picture),
                                        BatchOf(v_transmittances)};
    if (hits) {
      pictures.hits = BatchOf(hit_sums);
      pictures.v_hits = BatchOf(v_hit_sums);
    }
    const WorldGradient gradient = Gradient(0);
    cuda::RasterizeBackward(executor, splats.grid, blend, splats.Batch(), splats.lists.Mask(), pictures,
                            {nullptr, nullptr, v_colors.At(0), v_opacities.At(0), nullptr, &gradient});
    executor.Finish();
#else
    const int64_t images = call.images().count();
    ForEachImage(executor, images, [&](Pool* inner, int64_t image) {
      const WorldSplats world = splats.World(image);
      const WorldGradient gradient = Gradient(image);
      RasterizeBackward(inner, splats.grid, blend, splats.At(image, world), splats.lists.Mask(image),
                        images <= kMostKeptImages,
                        {picture.At(image), transmittances.At(image), v_picture.At(image), v_transmittances.At(image),
                         hits ? hit_sums.At(image) : nullptr, hits ? v_hit_sums.At(image) : nullptr},
                        {nullptr, nullptr, v_colors.At(image), v_opacities.At(image), nullptr, &gradient});
    });
#endif
  }
};

#if !defined(JAXSPLAT_CUDA)
struct Trace {
  Call& call;
  ContributorResults results{call};
  Splats splats{call, false};
  BlendRule blend = TakeBlendRule(call);

  void Run(Executor& executor) const {
    ForEachImage(executor, call.images().count(), [&](Pool* inner, int64_t image) {
      const WorldSplats world = splats.World(image);
      TraceContributors(inner, splats.grid, blend, splats.At(image, world), splats.lists.Mask(image),
                        results.At(image));
    });
  }
};
#endif

}  // namespace
}  // namespace jaxsplat

JAXSPLAT_OPS(jaxsplat_rasterize_gaussians_world_forward, Forward);
JAXSPLAT_OPS(jaxsplat_rasterize_gaussians_world_backward, Backward);
#if !defined(JAXSPLAT_CUDA)
JAXSPLAT_OP(jaxsplat_trace_contributors_world, Trace);
#endif
