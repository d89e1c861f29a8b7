// XLA calls of the rasterizer of 3D Gaussians along rays.
#include <cstdint>

#include "cpu/kept_images.h"
#include "cpu/rasterize_gaussians_3d.h"
#include "ffi/contributors.h"
#include "ffi/images.h"
#include "ffi/operands.h"

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

  Inputs(const Images& result_images, int64_t tile_size, bool hits, F32 means_, F32 quats_, F32 scales_, F32 opacities_,
         F32 colors_, F32 normals_, F32 rays_, F32 means2d_, F32 conics_, F32 depths_, F32 limits_, S32 radii_,
         Flags masks_, S32 gaussian_ids, S32 tile_offsets, S32 count)
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
        hits(hits) {
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
  WorldSplats World(int64_t image) const {
    return {means.At(image), quats.At(image), scales.At(image), hits ? normals.At(image) : nullptr, rays.At(image)};
  }
  Splats2d Splats(int64_t image, const WorldSplats* world) const {
    Splats2d s{};
    s.size = means.dim(0);
    s.channels = colors.dim(1);
    s.colors = colors.At(image);
    s.opacities = opacities.At(image);
    s.world = world;
    if (given_lists) {
      s.lists = {ids.At(image), offsets.At(image), ids.dim(0), *counts.At(image)};
    } else {
      s.means = means2d.At(image);
      s.conics = conics.At(image);
      s.depths = depths.At(image);
      s.radii = radii.At(image);
      if (limits.size() > 0) s.depth_limits = limits.At(image);
    }
    return s;
  }
  TileMask Mask(int64_t image) const { return {masks.At(image), masks.size()}; }
};

ffi::Error Forward(ffi::ThreadPool threads, F32 means, F32 quats, F32 scales, F32 opacities, F32 colors, F32 normals,
                   F32 rays, F32 means2d, F32 conics, F32 depths, F32 limits, S32 radii, Flags masks, S32 gaussian_ids,
                   S32 tile_offsets, S32 count, F32Result out_colors, F32Result out_transmittances,
                   S32Result out_last_ids, F32Result out_hits, int64_t tile_size, double alpha_max, double alpha_min,
                   double transmittance_min, bool blend_last, int64_t max_contributors, bool hits, bool keep) {
  return Guard([&] {
    XlaPool pool(threads);
    const Inputs in(Images(out_colors->dimensions(), 3), tile_size, hits, means, quats, scales, opacities, colors,
                    normals, rays, means2d, conics, depths, limits, radii, masks, gaussian_ids, tile_offsets, count);
    const BlendRule blend{alpha_max, alpha_min, transmittance_min, blend_last, max_contributors};
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      const WorldSplats world = in.World(image);
      const int64_t pixel = image * in.pixels();
      RasterizeForward(
          inner, in.grid, blend, in.Splats(image, &world), in.Mask(image), keep && in.images.count() <= kMostKeptImages,
          {out_colors->typed_data() + pixel * in.colors.dim(1), out_transmittances->typed_data() + pixel,
           out_last_ids->typed_data() + pixel, hits ? out_hits->typed_data() + pixel * kHitChannels : nullptr});
    });
  });
}

ffi::Error Backward(ffi::ThreadPool threads, F32 means, F32 quats, F32 scales, F32 opacities, F32 colors, F32 normals,
                    F32 rays, F32 means2d, F32 conics, F32 depths, F32 limits, S32 radii, Flags masks, S32 gaussian_ids,
                    S32 tile_offsets, S32 count, F32 picture, F32 transmittances, F32 accumulated, F32 v_picture,
                    F32 v_transmittances, F32 v_accumulated, F32Result v_means, F32Result v_quats, F32Result v_scales,
                    F32Result v_opacities, F32Result v_colors, F32Result v_normals, F32Result v_rays, int64_t tile_size,
                    double alpha_max, double alpha_min, double transmittance_min, bool blend_last,
                    int64_t max_contributors, bool hits) {
  return Guard([&] {
    XlaPool pool(threads);
    const Inputs in(Images(v_means->dimensions(), 2), tile_size, hits, means, quats, scales, opacities, colors, normals,
                    rays, means2d, conics, depths, limits, radii, masks, gaussian_ids, tile_offsets, count);
    const BlendRule blend{alpha_max, alpha_min, transmittance_min, blend_last, max_contributors};
    const int64_t channels = in.colors.dim(1), n = in.means.dim(0), height = in.grid.height, width = in.grid.width;
    const auto pixels = [&](const char* name, const F32& buffer, std::initializer_list<int64_t> dims) {
      Operand<float> operand(name, buffer.typed_data(), buffer.dimensions(), dims.size(), in.images);
      operand.Expect(name, dims);
      return operand;
    };
    const Operand<float> colors_out = pixels("picture", picture, {height, width, channels}),
                         t_out = pixels("transmittances", transmittances, {height, width}),
                         v_colors_out = pixels("v_picture", v_picture, {height, width, channels}),
                         v_t_out = pixels("v_transmittances", v_transmittances, {height, width});
    const int64_t rows = hits ? height : 0, columns = hits ? width : 0;
    const Operand<float> hits_out = pixels("hits", accumulated, {rows, columns, kHitChannels}),
                         v_hits_out = pixels("v_hits", v_accumulated, {rows, columns, kHitChannels});
    const bool to_rays = v_rays->element_count() > 0;
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      const WorldSplats world = in.World(image);
      const int64_t s = image * n;
      const WorldGradient gradient{v_means->typed_data() + s * 3, v_quats->typed_data() + s * 4,
                                   v_scales->typed_data() + s * 3, hits ? v_normals->typed_data() + s * 3 : nullptr,
                                   to_rays ? v_rays->typed_data() + image * in.pixels() * 6 : nullptr};
      RasterizeBackward(
          inner, in.grid, blend, in.Splats(image, &world), in.Mask(image), in.images.count() <= kMostKeptImages,
          {colors_out.At(image), t_out.At(image), v_colors_out.At(image), v_t_out.At(image),
           hits ? hits_out.At(image) : nullptr, hits ? v_hits_out.At(image) : nullptr},
          {nullptr, nullptr, v_colors->typed_data() + s * channels, v_opacities->typed_data() + s, nullptr, &gradient});
    });
  });
}

ffi::Error Trace(ffi::ThreadPool threads, F32 means, F32 quats, F32 scales, F32 opacities, F32 colors, F32 normals,
                 F32 rays, F32 means2d, F32 conics, F32 depths, F32 limits, S32 radii, Flags masks, S32 gaussian_ids,
                 S32 tile_offsets, S32 count, S32Result counts, S32Result ids, F32Result alphas,
                 F32Result transmittances, F32Result splat_weights, S32Result splat_counts, int64_t tile_size,
                 double alpha_max, double alpha_min, double transmittance_min, bool blend_last,
                 int64_t max_contributors, bool by_weight) {
  return Guard([&] {
    XlaPool pool(threads);
    ContributorResults results{counts, ids, alphas, transmittances, splat_weights, splat_counts};
    const Inputs in(results.images(), tile_size, false, means, quats, scales, opacities, colors, normals, rays, means2d,
                    conics, depths, limits, radii, masks, gaussian_ids, tile_offsets, count);
    const BlendRule blend{alpha_max, alpha_min, transmittance_min, blend_last, max_contributors};
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      const WorldSplats world = in.World(image);
      TraceContributors(inner, in.grid, blend, in.Splats(image, &world), in.Mask(image), results.At(image, by_weight));
    });
  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
using jaxsplat::Flags;
using jaxsplat::S32;
namespace ffi = xla::ffi;

#define JAXSPLAT_OPERANDS()   \
  ffi::Ffi::Bind()            \
      .Ctx<ffi::ThreadPool>() \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<F32>()             \
      .Arg<S32>()             \
      .Arg<Flags>()           \
      .Arg<S32>()             \
      .Arg<S32>()             \
      .Arg<S32>()

JAXSPLAT_HANDLER(
    jaxsplat_rasterize_gaussians_world_forward, jaxsplat::Forward,
    JAXSPLAT_OPERANDS().Ret<F32>().Ret<F32>().Ret<S32>().Ret<F32>().JAXSPLAT_BLEND().Attr<bool>("hits").Attr<bool>(
        "keep"));
JAXSPLAT_HANDLER(jaxsplat_rasterize_gaussians_world_backward, jaxsplat::Backward,
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
                     .JAXSPLAT_BLEND()
                     .Attr<bool>("hits"));
JAXSPLAT_HANDLER(jaxsplat_trace_contributors_world, jaxsplat::Trace, JAXSPLAT_OPERANDS().JAXSPLAT_CONTRIBUTORS());
