// XLA calls of the rasterizer of 3D Gaussians along rays, for CPUs and for CUDA devices.
#include <cstdint>

#include "ffi/executor.h"
#include "ffi/operands.h"
#include "ops/rasterize_gaussians_3d.h"
#if defined(JAXSPLAT_CUDA)
#include "cuda/rasterize_gaussians_3d.h"
#else
#include "cpu/kept_images.h"
#include "cpu/rasterize_gaussians_3d.h"
#include "ffi/contributors.h"
#endif

namespace jaxsplat {
namespace {

// The operands that both passes share, checked.
struct Inputs {
  Images images;
  ImageGrid grid;
  Operand<float> means, quats, scales, opacities, colors, normals, rays, means2d, conics, depths, limits;
  Operand<int32_t> radii, ids, offsets, counts;
  Operand<bool> masks;
  bool hits, given_lists;
  ListRule list_rule;

  Inputs(const Images& result_images, int64_t tile_size, bool hits, F32 means_, F32 quats_, F32 scales_, F32 opacities_,
         F32 colors_, F32 normals_, F32 rays_, F32 means2d_, F32 conics_, F32 depths_, F32 limits_, S32 radii_,
         Flags masks_, S32 gaussian_ids, S32 tile_offsets, S32 count, const ListRule& lists)
      : images(result_images),
        means("means", means_.typed_data(), means_.dimensions(), 2, images),
        quats("quats", quats_.typed_data(), quats_.dimensions(), 2, images),
        scales("scales", scales_.typed_data(), scales_.dimensions(), 2, images),
        opacities("opacities", opacities_.typed_data(), opacities_.dimensions(), 1, images),
        colors("colors", colors_.typed_data(), colors_.dimensions(), 2, images),
        normals("normals", normals_.typed_data(), normals_.dimensions(), 2, images),
        rays("rays", rays_.typed_data(), rays_.dimensions(), 3, images),
        means2d("means2d", means2d_.typed_data(), means2d_.dimensions(), 2, images),
        conics("conics", conics_.typed_data(), conics_.dimensions(), 2, images),
        depths("depths", depths_.typed_data(), depths_.dimensions(), 1, images),
        limits("depth_limit", limits_.typed_data(), limits_.dimensions(), 2, images),
        radii("radii", radii_.typed_data(), radii_.dimensions(), 2, images),
        ids("gaussian_ids", gaussian_ids.typed_data(), gaussian_ids.dimensions(), 1, images),
        offsets("tile_offsets", tile_offsets.typed_data(), tile_offsets.dimensions(), 1, images),
        counts("count", count.typed_data(), count.dimensions(), 0, images),
        masks("masks", masks_.typed_data(), masks_.dimensions(), 2, images),
        hits(hits),
        list_rule(lists) {
#if defined(JAXSPLAT_CUDA)
    if (lists.boxes || lists.most_per_tile > 0) {
      throw std::invalid_argument("tile_assignment=\"box\" and max_list_entries have no kernels for CUDA devices");
    }
#endif
    const int64_t n = means.dim(0), height = rays.dim(0), width = rays.dim(1);
    grid = {width, height, tile_size};
    given_lists = offsets.dim(0) > 0;
    means.Expect("means", {n, 3});
    quats.Expect("quats", {n, 4});
    scales.Expect("scales", {n, 3});
    opacities.Expect("opacities", {n});
    colors.Expect("colors", {n, colors.dim(1)});
    if (hits) normals.Expect("normals", {n, 3});
    rays.Expect("rays", {height, width, 6});
    if (limits.size() > 0) limits.Expect("depth_limit", {height, width});
    if (given_lists) {
      offsets.Expect("tile_offsets", {grid.tiles() + 1});
    } else {
      means2d.Expect("means2d", {n, 2});
      conics.Expect("conics", {n, 3});
      depths.Expect("depths", {n});
      radii.Expect("radii", {n, 2});
    }
    if (masks.size() != 1) masks.Expect("masks", {grid.tiles_y(), grid.tiles_x()});
  }

  int64_t pixels() const { return grid.width * grid.height; }
};

// Of the backward pass. Under vmap any of these may be shared between images too.
struct Cotangents {
  Operand<float> colors, transmittances, hits, v_colors, v_transmittances, v_hits;

  Cotangents(const Inputs& in, const F32& picture, const F32& t, const F32& accumulated, const F32& v_picture,
             const F32& v_t, const F32& v_accumulated)
      : colors("picture", picture.typed_data(), picture.dimensions(), 3, in.images),
        transmittances("transmittances", t.typed_data(), t.dimensions(), 2, in.images),
        hits("hits", accumulated.typed_data(), accumulated.dimensions(), 3, in.images),
        v_colors("v_picture", v_picture.typed_data(), v_picture.dimensions(), 3, in.images),
        v_transmittances("v_transmittances", v_t.typed_data(), v_t.dimensions(), 2, in.images),
        v_hits("v_hits", v_accumulated.typed_data(), v_accumulated.dimensions(), 3, in.images) {
    const int64_t height = in.grid.height, width = in.grid.width, channels = in.colors.dim(1);
    const int64_t rows = in.hits ? height : 0, columns = in.hits ? width : 0;
    colors.Expect("picture", {height, width, channels});
    transmittances.Expect("transmittances", {height, width});
    hits.Expect("hits", {rows, columns, kHitChannels});
    v_colors.Expect("v_picture", {height, width, channels});
    v_transmittances.Expect("v_transmittances", {height, width});
    v_hits.Expect("v_hits", {rows, columns, kHitChannels});
  }
};

#if defined(JAXSPLAT_CUDA)

cuda::SplatBatch Batch(const Inputs& in) {
  cuda::SplatBatch batch;
  batch.axes = AxesOf(in.images);
  batch.images = in.images.count();
  batch.size = in.means.dim(0);
  batch.channels = in.colors.dim(1);
  batch.colors = BatchOf(in.colors, in.images);
  batch.opacities = BatchOf(in.opacities, in.images);
  batch.world.means = BatchOf(in.means, in.images);
  batch.world.quats = BatchOf(in.quats, in.images);
  batch.world.scales = BatchOf(in.scales, in.images);
  if (in.hits) batch.world.normals = BatchOf(in.normals, in.images);
  batch.world.rays = BatchOf(in.rays, in.images);
  if (in.given_lists) {
    batch.given_lists = true;
    batch.ids = BatchOf(in.ids, in.images);
    batch.offsets = BatchOf(in.offsets, in.images);
    batch.counts = BatchOf(in.counts, in.images);
    batch.capacity = in.ids.dim(0);
  } else {
    batch.means = BatchOf(in.means2d, in.images);
    batch.conics = BatchOf(in.conics, in.images);
    batch.depths = BatchOf(in.depths, in.images);
    batch.radii = BatchOf(in.radii, in.images);
    if (in.limits.size() > 0) batch.depth_limits = BatchOf(in.limits, in.images);
    batch.most_entries = in.list_rule.most_entries;
  }
  return batch;
}

// The backward pass makes its lists again: what one call leaves on the device is XLA's when it returns.
void RunForward(Executor& executor, const Inputs& in, const BlendRule& blend, bool, const Picture& pictures) {
  cuda::RasterizeForward(executor, in.grid, blend, Batch(in), {BatchOf(in.masks, in.images), in.masks.size()},
                         pictures);
  executor.Fill(pictures.left_out, 0, in.images.count());
  executor.Finish();
}

void RunBackward(Executor& executor, const Inputs& in, const BlendRule& blend, const Cotangents& v,
                 const SplatGradient& result) {
  cuda::PictureGradientBatch gradients{BatchOf(v.colors, in.images), BatchOf(v.transmittances, in.images),
                                       BatchOf(v.v_colors, in.images), BatchOf(v.v_transmittances, in.images)};
  if (in.hits) {
    gradients.hits = BatchOf(v.hits, in.images);
    gradients.v_hits = BatchOf(v.v_hits, in.images);
  }
  cuda::RasterizeBackward(executor, in.grid, blend, Batch(in), {BatchOf(in.masks, in.images), in.masks.size()},
                          gradients, result);
  executor.Finish();
}

#else

WorldSplats World(const Inputs& in, int64_t image) {
  return {in.means.At(image), in.quats.At(image), in.scales.At(image), in.hits ? in.normals.At(image) : nullptr,
          in.rays.At(image)};
}

Splats2d Splats(const Inputs& in, int64_t image, const WorldSplats* world) {
  Splats2d s{};
  s.size = in.means.dim(0);
  s.channels = in.colors.dim(1);
  s.colors = in.colors.At(image);
  s.opacities = in.opacities.At(image);
  s.world = world;
  if (in.given_lists) {
    s.lists = {in.ids.At(image), in.offsets.At(image), in.ids.dim(0), *in.counts.At(image)};
  } else {
    s.means = in.means2d.At(image);
    s.conics = in.conics.At(image);
    s.depths = in.depths.At(image);
    s.radii = in.radii.At(image);
    s.list_rule = in.list_rule;
    if (in.limits.size() > 0) s.depth_limits = in.limits.At(image);
  }
  return s;
}

TileMask Mask(const Inputs& in, int64_t image) { return {in.masks.At(image), in.masks.size()}; }

void RunForward(Executor& executor, const Inputs& in, const BlendRule& blend, bool keep, const Picture& pictures) {
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    const WorldSplats world = World(in, image);
    const int64_t pixel = image * in.pixels();
    RasterizeForward(inner, in.grid, blend, Splats(in, image, &world), Mask(in, image),
                     keep && in.images.count() <= kMostKeptImages,
                     {pictures.colors + pixel * in.colors.dim(1), pictures.transmittances + pixel,
                      pictures.last_ids + pixel, in.hits ? pictures.hits + pixel * kHitChannels : nullptr,
                      pictures.left_out + image, pictures.list_count + image});
  });
}

void RunBackward(Executor& executor, const Inputs& in, const BlendRule& blend, const Cotangents& v,
                 const SplatGradient& result) {
  const int64_t channels = in.colors.dim(1), n = in.means.dim(0);
  const WorldGradient& all = *result.world;
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    const WorldSplats world = World(in, image);
    const int64_t s = image * n;
    const WorldGradient gradient{all.means + s * 3, all.quats + s * 4, all.scales + s * 3,
                                 in.hits ? all.normals + s * 3 : nullptr,
                                 all.rays != nullptr ? all.rays + image * in.pixels() * 6 : nullptr};
    RasterizeBackward(
        inner, in.grid, blend, Splats(in, image, &world), Mask(in, image), in.images.count() <= kMostKeptImages,
        {v.colors.At(image), v.transmittances.At(image), v.v_colors.At(image), v.v_transmittances.At(image),
         in.hits ? v.hits.At(image) : nullptr, in.hits ? v.v_hits.At(image) : nullptr},
        {nullptr, nullptr, result.colors + s * channels, result.opacities + s, nullptr, &gradient});
  });
}

ffi::Error Trace(Executor executor, F32 means, F32 quats, F32 scales, F32 opacities, F32 colors, F32 normals, F32 rays,
                 F32 means2d, F32 conics, F32 depths, F32 limits, S32 radii, Flags masks, S32 gaussian_ids,
                 S32 tile_offsets, S32 count, S32Result counts, S32Result ids, F32Result alphas,
                 F32Result transmittances, F32Result splat_weights, S32Result splat_counts, int64_t tile_size,
                 double alpha_max, double alpha_min, double transmittance_min, bool blend_last,
                 int64_t max_contributors, int64_t max_intersections, bool boxes, int64_t max_list_entries,
                 bool by_weight) {
  return Guard([&] {
    ContributorResults results{counts, ids, alphas, transmittances, splat_weights, splat_counts};
    const Inputs in(results.images(), tile_size, false, means, quats, scales, opacities, colors, normals, rays, means2d,
                    conics, depths, limits, radii, masks, gaussian_ids, tile_offsets, count,
                    {boxes, max_intersections, max_list_entries});
    const BlendRule blend{alpha_max, alpha_min, transmittance_min, blend_last, max_contributors};
    ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
      const WorldSplats world = World(in, image);
      TraceContributors(inner, in.grid, blend, Splats(in, image, &world), Mask(in, image),
                        results.At(image, by_weight));
    });
  });
}

#endif

ffi::Error Forward(Executor executor, F32 means, F32 quats, F32 scales, F32 opacities, F32 colors, F32 normals,
                   F32 rays, F32 means2d, F32 conics, F32 depths, F32 limits, S32 radii, Flags masks, S32 gaussian_ids,
                   S32 tile_offsets, S32 count, F32Result out_colors, F32Result out_transmittances,
                   S32Result out_last_ids, S32Result out_left_out, S32Result out_list_count, F32Result out_hits,
                   WorkspaceResult workspace, int64_t tile_size, double alpha_max, double alpha_min,
                   double transmittance_min, bool blend_last, int64_t max_contributors, int64_t max_intersections,
                   bool boxes, int64_t max_list_entries, bool hits, bool keep) {
  return Guard([&] {
    UseOnly(executor, workspace);
    const Inputs in(Images(out_colors->dimensions(), 3), tile_size, hits, means, quats, scales, opacities, colors,
                    normals, rays, means2d, conics, depths, limits, radii, masks, gaussian_ids, tile_offsets, count,
                    {boxes, max_intersections, max_list_entries});
    RunForward(executor, in, {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors}, keep,
               {out_colors->typed_data(), out_transmittances->typed_data(), out_last_ids->typed_data(),
                hits ? out_hits->typed_data() : nullptr, out_left_out->typed_data(), out_list_count->typed_data()});
  });
}

ffi::Error Backward(Executor executor, F32 means, F32 quats, F32 scales, F32 opacities, F32 colors, F32 normals,
                    F32 rays, F32 means2d, F32 conics, F32 depths, F32 limits, S32 radii, Flags masks, S32 gaussian_ids,
                    S32 tile_offsets, S32 count, F32 picture, F32 transmittances, F32 accumulated, F32 v_picture,
                    F32 v_transmittances, F32 v_accumulated, F32Result v_means, F32Result v_quats, F32Result v_scales,
                    F32Result v_opacities, F32Result v_colors, F32Result v_normals, F32Result v_rays,
                    WorkspaceResult workspace, int64_t tile_size, double alpha_max, double alpha_min,
                    double transmittance_min, bool blend_last, int64_t max_contributors, int64_t max_intersections,
                    bool boxes, int64_t max_list_entries, bool hits, double alpha_gradient_max) {
  return Guard([&] {
    UseOnly(executor, workspace);
    const Inputs in(Images(v_means->dimensions(), 2), tile_size, hits, means, quats, scales, opacities, colors, normals,
                    rays, means2d, conics, depths, limits, radii, masks, gaussian_ids, tile_offsets, count,
                    {boxes, max_intersections, max_list_entries});
    const WorldGradient gradient{v_means->typed_data(), v_quats->typed_data(), v_scales->typed_data(),
                                 hits ? v_normals->typed_data() : nullptr,
                                 v_rays->element_count() > 0 ? v_rays->typed_data() : nullptr};
    RunBackward(executor, in,
                {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors, alpha_gradient_max},
                Cotangents(in, picture, transmittances, accumulated, v_picture, v_transmittances, v_accumulated),
                {nullptr, nullptr, v_colors->typed_data(), v_opacities->typed_data(), nullptr, &gradient});
  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::Bytes;
using jaxsplat::F32;
using jaxsplat::Flags;
using jaxsplat::S32;
namespace ffi = xla::ffi;

#define JAXSPLAT_OPERANDS()      \
  ffi::Ffi::Bind()               \
      .Ctx<jaxsplat::Executor>() \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<F32>()                \
      .Arg<S32>()                \
      .Arg<Flags>()              \
      .Arg<S32>()                \
      .Arg<S32>()                \
      .Arg<S32>()

JAXSPLAT_HANDLERS(jaxsplat_rasterize_gaussians_world_forward, jaxsplat::Forward,
                  JAXSPLAT_OPERANDS()
                      .Ret<F32>()
                      .Ret<F32>()
                      .Ret<S32>()
                      .Ret<S32>()
                      .Ret<S32>()
                      .Ret<F32>()
                      .Ret<Bytes>()
                      .JAXSPLAT_BLEND()
                      .JAXSPLAT_LISTS()
                      .Attr<bool>("hits")
                      .Attr<bool>("keep"));
JAXSPLAT_HANDLERS(jaxsplat_rasterize_gaussians_world_backward, jaxsplat::Backward,
                  JAXSPLAT_OPERANDS()
                      .Arg<F32>()
                      .Arg<F32>()
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
                      .Ret<F32>()
                      .Ret<Bytes>()
                      .JAXSPLAT_BLEND()
                      .JAXSPLAT_LISTS()
                      .Attr<bool>("hits")
                      .Attr<double>("alpha_gradient_max"));
#if !defined(JAXSPLAT_CUDA)
JAXSPLAT_HANDLER(jaxsplat_trace_contributors_world, jaxsplat::Trace, JAXSPLAT_OPERANDS().JAXSPLAT_CONTRIBUTORS());
#endif
