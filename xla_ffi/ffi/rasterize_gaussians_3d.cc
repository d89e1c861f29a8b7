// XLA calls of the rasterizer of projected 3D Gaussians, for CPUs and for CUDA devices.
#include "ops/rasterize_gaussians_3d.h"

#include <cstdint>

#include "ffi/executor.h"
#include "ffi/operands.h"
#include "ops/intersect_tiles.h"
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
  BlendRule blend;
  Operand<float> means, conics, colors, opacities, depths, limits;
  Operand<int32_t> radii, ids, offsets, counts;
  Operand<bool> masks;
  bool given_lists;
  ListRule list_rule;

  Inputs(const Images& result_images, Dims picture, int64_t tile_size, BlendRule rule, const F32& means2d,
         const F32& conics_, const F32& colors_, const F32& opacities_, const F32& depths_, const F32& depth_limits,
         const S32& radii_, const Flags& masks_, const S32& gaussian_ids, const S32& tile_offsets, const S32& count,
         const ListRule& lists)
      : images(result_images),
        grid{picture[picture.size() - 2], picture[picture.size() - 3], tile_size},
        blend(rule),
        means("means2d", means2d.typed_data(), means2d.dimensions(), 2, images),
        conics("conics", conics_.typed_data(), conics_.dimensions(), 2, images),
        colors("colors", colors_.typed_data(), colors_.dimensions(), 2, images),
        opacities("opacities", opacities_.typed_data(), opacities_.dimensions(), 1, images),
        depths("depths", depths_.typed_data(), depths_.dimensions(), 1, images),
        limits("depth_limits", depth_limits.typed_data(), depth_limits.dimensions(), 2, images),
        radii("radii", radii_.typed_data(), radii_.dimensions(), 2, images),
        ids("gaussian_ids", gaussian_ids.typed_data(), gaussian_ids.dimensions(), 1, images),
        offsets("tile_offsets", tile_offsets.typed_data(), tile_offsets.dimensions(), 1, images),
        counts("count", count.typed_data(), count.dimensions(), 0, images),
        masks("masks", masks_.typed_data(), masks_.dimensions(), 2, images),
        list_rule(lists) {
#if defined(JAXSPLAT_CUDA)
    if (lists.boxes || lists.most_per_tile > 0) {
      throw std::invalid_argument("tile_assignment=\"box\" and max_list_entries have no kernels for CUDA devices");
    }
#endif
    const int64_t n = means.dim(0);
    given_lists = offsets.dim(0) > 0;
    means.Expect("means2d", {n, 2});
    conics.Expect("conics", {n, 3});
    colors.Expect("colors", {n, picture[picture.size() - 1]});
    opacities.Expect("opacities", {n});
    if (limits.size() > 0) limits.Expect("depth_limits", {grid.height, grid.width});
    if (!given_lists || limits.size() > 0) depths.Expect("depths", {n});
    if (given_lists) {
      offsets.Expect("tile_offsets", {grid.tiles() + 1});
    } else {
      radii.Expect("radii", {n, 2});
    }
    if (masks.size() != 1) masks.Expect("masks", {grid.tiles_y(), grid.tiles_x()});
  }
};

// Of the backward pass. Under vmap any of these may be shared between images too.
struct Cotangents {
  Operand<float> colors, transmittances, v_colors, v_transmittances;

  Cotangents(const Inputs& in, const F32& picture, const F32& t, const F32& v_picture, const F32& v_t)
      : colors("picture", picture.typed_data(), picture.dimensions(), 3, in.images),
        transmittances("transmittances", t.typed_data(), t.dimensions(), 2, in.images),
        v_colors("v_picture", v_picture.typed_data(), v_picture.dimensions(), 3, in.images),
        v_transmittances("v_transmittances", v_t.typed_data(), v_t.dimensions(), 2, in.images) {
    v_colors.Expect("v_picture", {in.grid.height, in.grid.width, in.colors.dim(1)});
    transmittances.Expect("transmittances", {in.grid.height, in.grid.width});
    v_transmittances.Expect("v_transmittances", {in.grid.height, in.grid.width});
  }
};

// What the tile intersection takes, checked.
struct IntersectInputs {
  Images images;
  ImageGrid grid;
  double alpha_min;
  int64_t size, capacity;
  Operand<float> means, depths, conics, opacities;
  Operand<int32_t> radii;

  IntersectInputs(const Images& result_images, const ImageGrid& image_grid, double alpha, int64_t room,
                  const F32& means2d, const S32& radii_, const F32& depths_, const F32& conics_, const F32& opacities_)
      : images(result_images),
        grid(image_grid),
        alpha_min(alpha),
        capacity(room),
        means("means2d", means2d.typed_data(), means2d.dimensions(), 2, images),
        depths("depths", depths_.typed_data(), depths_.dimensions(), 1, images),
        conics("conics", conics_.typed_data(), conics_.dimensions(), 2, images),
        opacities("opacities", opacities_.typed_data(), opacities_.dimensions(), 1, images),
        radii("radii", radii_.typed_data(), radii_.dimensions(), 2, images) {
    size = means.dim(0);
    means.Expect("means2d", {size, 2});
    radii.Expect("radii", {size, 2});
  }
  // What is not given has no rows.
  bool Has(const Operand<float>& operand) const { return operand.dim(0) == size; }
};

#if defined(JAXSPLAT_CUDA)

cuda::SplatBatch Batch(const Inputs& in) {
  cuda::SplatBatch batch;
  batch.axes = AxesOf(in.images);
  batch.images = in.images.count();
  batch.size = in.means.dim(0);
  batch.channels = in.colors.dim(1);
  batch.means = BatchOf(in.means, in.images);
  batch.conics = BatchOf(in.conics, in.images);
  batch.colors = BatchOf(in.colors, in.images);
  batch.opacities = BatchOf(in.opacities, in.images);
  batch.depths = BatchOf(in.depths, in.images);
  if (in.limits.size() > 0) batch.depth_limits = BatchOf(in.limits, in.images);
  if (in.given_lists) {
    batch.given_lists = true;
    batch.ids = BatchOf(in.ids, in.images);
    batch.offsets = BatchOf(in.offsets, in.images);
    batch.counts = BatchOf(in.counts, in.images);
    batch.capacity = in.ids.dim(0);
  } else {
    batch.radii = BatchOf(in.radii, in.images);
    batch.most_entries = in.list_rule.most_entries;
  }
  return batch;
}

// The backward pass makes its lists again: what one call leaves on the device is XLA's when it returns.
void RunForward(Executor& executor, const Inputs& in, bool, const Picture& pictures) {
  cuda::RasterizeForward(executor, in.grid, in.blend, Batch(in), {BatchOf(in.masks, in.images), in.masks.size()},
                         pictures);
  executor.Fill(pictures.left_out, 0, in.images.count());
  executor.Finish();
}

void RunBackward(Executor& executor, const Inputs& in, const Cotangents& v, const SplatGradient& result) {
  cuda::RasterizeBackward(executor, in.grid, in.blend, Batch(in), {BatchOf(in.masks, in.images), in.masks.size()},
                          {BatchOf(v.colors, in.images), BatchOf(v.transmittances, in.images),
                           BatchOf(v.v_colors, in.images), BatchOf(v.v_transmittances, in.images)},
                          result);
  executor.Finish();
}

void RunIntersect(Executor& executor, const IntersectInputs& in, const IntersectOutput& output) {
  cuda::SplatBatch batch;
  batch.axes = AxesOf(in.images);
  batch.images = in.images.count();
  batch.size = in.size;
  batch.means = BatchOf(in.means, in.images);
  batch.radii = BatchOf(in.radii, in.images);
  if (in.Has(in.depths)) batch.depths = BatchOf(in.depths, in.images);
  if (in.Has(in.conics)) batch.conics = BatchOf(in.conics, in.images);
  if (in.Has(in.opacities)) batch.opacities = BatchOf(in.opacities, in.images);
  cuda::IntersectTiles(executor, in.grid, batch, in.alpha_min, in.capacity, output);
  executor.Finish();
}

#else

Splats2d Splats(const Inputs& in, int64_t image) {
  Splats2d s{};
  s.size = in.means.dim(0);
  s.channels = in.colors.dim(1);
  s.means = in.means.At(image);
  s.conics = in.conics.At(image);
  s.colors = in.colors.At(image);
  s.opacities = in.opacities.At(image);
  s.depths = in.depths.At(image);
  if (in.limits.size() > 0) s.depth_limits = in.limits.At(image);
  if (in.given_lists) {
    s.lists = {in.ids.At(image), in.offsets.At(image), in.ids.dim(0), *in.counts.At(image)};
  } else {
    s.radii = in.radii.At(image);
    s.list_rule = in.list_rule;
  }
  return s;
}

TileMask Mask(const Inputs& in, int64_t image) { return {in.masks.At(image), in.masks.size()}; }

void RunForward(Executor& executor, const Inputs& in, bool keep, const Picture& pictures) {
  const int64_t pixels = in.grid.width * in.grid.height, channels = in.colors.dim(1);
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    RasterizeForward(
        inner, in.grid, in.blend, Splats(in, image), Mask(in, image), keep && in.images.count() <= kMostKeptImages,
        {pictures.colors + image * pixels * channels, pictures.transmittances + image * pixels,
         pictures.last_ids + image * pixels, nullptr, pictures.left_out + image, pictures.list_count + image});
  });
}

void RunBackward(Executor& executor, const Inputs& in, const Cotangents& v, const SplatGradient& result) {
  const int64_t channels = in.colors.dim(1), n = in.means.dim(0);
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    const int64_t s = image * n;
    RasterizeBackward(
        inner, in.grid, in.blend, Splats(in, image), Mask(in, image), in.images.count() <= kMostKeptImages,
        {v.colors.At(image), v.transmittances.At(image), v.v_colors.At(image), v.v_transmittances.At(image)},
        {result.means + s * 2, result.conics + s * 3, result.colors + s * channels, result.opacities + s,
         result.absgrads != nullptr ? result.absgrads + s * 2 : nullptr});
  });
}

void RunIntersect(Executor& executor, const IntersectInputs& in, const IntersectOutput& output) {
  const auto given = [&](const Operand<float>& operand, int64_t image) {
    return in.Has(operand) ? operand.At(image) : nullptr;
  };
  ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
    IntersectTiles(inner, in.grid,
                   {in.size, in.means.At(image), in.radii.At(image), given(in.depths, image), given(in.conics, image),
                    given(in.opacities, image), in.alpha_min, in.capacity},
                   {output.gaussian_ids + image * in.capacity, output.tile_offsets + image * (in.grid.tiles() + 1),
                    output.tiles_per_gaussian + image * in.size, output.count + image});
  });
}

ffi::Error Trace(Executor executor, F32 means2d, F32 conics, F32 colors, F32 opacities, F32 depths, F32 limits,
                 S32 radii, Flags masks, S32 gaussian_ids, S32 tile_offsets, S32 count, S32Result counts, S32Result ids,
                 F32Result alphas, F32Result transmittances, F32Result splat_weights, S32Result splat_counts,
                 int64_t tile_size, double alpha_max, double alpha_min, double transmittance_min, bool blend_last,
                 int64_t max_contributors, int64_t max_intersections, bool boxes, int64_t max_list_entries,
                 bool by_weight) {
  return Guard([&] {
    ContributorResults results{counts, ids, alphas, transmittances, splat_weights, splat_counts};
    const Dims pixels = counts->dimensions();
    const int64_t picture[] = {pixels[pixels.size() - 2], pixels[pixels.size() - 1], colors.dimensions().back()};
    const Inputs in(results.images(), Dims(picture, 3), tile_size,
                    {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors}, means2d, conics, colors,
                    opacities, depths, limits, radii, masks, gaussian_ids, tile_offsets, count,
                    {boxes, max_intersections, max_list_entries});
    ForEachImage(executor, in.images.count(), [&](Pool* inner, int64_t image) {
      TraceContributors(inner, in.grid, in.blend, Splats(in, image), Mask(in, image), results.At(image, by_weight));
    });
  });
}

#endif

ffi::Error Forward(Executor executor, F32 means2d, F32 conics, F32 colors, F32 opacities, F32 depths, F32 limits,
                   S32 radii, Flags masks, S32 gaussian_ids, S32 tile_offsets, S32 count, F32Result out_colors,
                   F32Result out_transmittances, S32Result out_last_ids, S32Result out_left_out,
                   S32Result out_list_count, WorkspaceResult workspace, int64_t tile_size, double alpha_max,
                   double alpha_min, double transmittance_min, bool blend_last, int64_t max_contributors,
                   int64_t max_intersections, bool boxes, int64_t max_list_entries, bool keep) {
  return Guard([&] {
    UseOnly(executor, workspace);
    const Inputs in(Images(out_colors->dimensions(), 3), out_colors->dimensions(), tile_size,
                    {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors}, means2d, conics, colors,
                    opacities, depths, limits, radii, masks, gaussian_ids, tile_offsets, count,
                    {boxes, max_intersections, max_list_entries});
    RunForward(executor, in, keep,
               {out_colors->typed_data(), out_transmittances->typed_data(), out_last_ids->typed_data(), nullptr,
                out_left_out->typed_data(), out_list_count->typed_data()});
  });
}

ffi::Error Backward(Executor executor, F32 means2d, F32 conics, F32 colors, F32 opacities, F32 depths, F32 limits,
                    S32 radii, Flags masks, S32 gaussian_ids, S32 tile_offsets, S32 count, F32 picture,
                    F32 transmittances, F32 v_picture, F32 v_transmittances, F32Result v_means2d, F32Result v_conics,
                    F32Result v_colors, F32Result v_opacities, F32Result v_absgrads, WorkspaceResult workspace,
                    int64_t tile_size, double alpha_max, double alpha_min, double transmittance_min, bool blend_last,
                    int64_t max_contributors, int64_t max_intersections, bool boxes, int64_t max_list_entries,
                    double alpha_gradient_max) {
  return Guard([&] {
    UseOnly(executor, workspace);
    const Inputs in(Images(v_means2d->dimensions(), 2), picture.dimensions(), tile_size,
                    {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors, alpha_gradient_max},
                    means2d, conics, colors, opacities, depths, limits, radii, masks, gaussian_ids, tile_offsets, count,
                    {boxes, max_intersections, max_list_entries});
    const bool absgrad = v_absgrads->element_count() > 0;
    RunBackward(executor, in, Cotangents(in, picture, transmittances, v_picture, v_transmittances),
                {v_means2d->typed_data(), v_conics->typed_data(), v_colors->typed_data(), v_opacities->typed_data(),
                 absgrad ? v_absgrads->typed_data() : nullptr});
  });
}

ffi::Error Intersect(Executor executor, F32 means2d, S32 radii, F32 depths, F32 conics, F32 opacities,
                     S32Result gaussian_ids, S32Result tile_offsets, S32Result tiles_per_gaussian, S32Result count,
                     int64_t width, int64_t height, int64_t tile_size, double alpha_min) {
  return Guard([&] {
    const IntersectInputs in(Images(count->dimensions(), 0), {width, height, tile_size}, alpha_min,
                             gaussian_ids->dimensions().back(), means2d, radii, depths, conics, opacities);
    RunIntersect(executor, in,
                 {gaussian_ids->typed_data(), tile_offsets->typed_data(), tiles_per_gaussian->typed_data(),
                  count->typed_data()});
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
      .Arg<S32>()                \
      .Arg<Flags>()              \
      .Arg<S32>()                \
      .Arg<S32>()                \
      .Arg<S32>()

JAXSPLAT_HANDLERS(jaxsplat_rasterize_gaussians_3d_forward, jaxsplat::Forward,
                  JAXSPLAT_OPERANDS()
                      .Ret<F32>()
                      .Ret<F32>()
                      .Ret<S32>()
                      .Ret<S32>()
                      .Ret<S32>()
                      .Ret<Bytes>()
                      .JAXSPLAT_BLEND()
                      .JAXSPLAT_LISTS()
                      .Attr<bool>("keep"));
JAXSPLAT_HANDLERS(jaxsplat_rasterize_gaussians_3d_backward, jaxsplat::Backward,
                  JAXSPLAT_OPERANDS()
                      .Arg<F32>()
                      .Arg<F32>()
                      .Arg<F32>()
                      .Arg<F32>()
                      .Ret<F32>()
                      .Ret<F32>()
                      .Ret<F32>()
                      .Ret<F32>()
                      .Ret<F32>()
                      .Ret<Bytes>()
                      .JAXSPLAT_BLEND()
                      .JAXSPLAT_LISTS()
                      .Attr<double>("alpha_gradient_max"));
#if !defined(JAXSPLAT_CUDA)
JAXSPLAT_HANDLER(jaxsplat_trace_contributors, jaxsplat::Trace, JAXSPLAT_OPERANDS().JAXSPLAT_CONTRIBUTORS());
#endif
JAXSPLAT_HANDLER(jaxsplat_intersect_tiles, jaxsplat::Intersect,
                 ffi::Ffi::Bind()
                     .Ctx<jaxsplat::Executor>()
                     .Arg<F32>()
                     .Arg<S32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Ret<S32>()
                     .Ret<S32>()
                     .Ret<S32>()
                     .Ret<S32>()
                     .Attr<int64_t>("width")
                     .Attr<int64_t>("height")
                     .Attr<int64_t>("tile_size")
                     .Attr<double>("alpha_min"));
