// XLA calls of the rasterizer of projected 3D Gaussians.
#include "cpu/rasterize_gaussians_3d.h"

#include <cstdint>

#include "ffi/images.h"
#include "ffi/operands.h"

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

  Inputs(const Images& result_images, Dims picture, int64_t tile_size, BlendRule rule, const F32& means2d,
         const F32& conics_, const F32& colors_, const F32& opacities_, const F32& depths_, const F32& depth_limits,
         const S32& radii_, const Flags& masks_, const S32& gaussian_ids, const S32& tile_offsets, const S32& count)
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
        masks("masks", masks_.typed_data(), masks_.dimensions(), 2, images) {
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

  Splats2d Splats(int64_t image) const {
    Splats2d s{};
    s.size = means.dim(0);
    s.channels = colors.dim(1);
    s.means = means.At(image);
    s.conics = conics.At(image);
    s.colors = colors.At(image);
    s.opacities = opacities.At(image);
    s.depths = depths.At(image);
    if (limits.size() > 0) s.depth_limits = limits.At(image);
    if (given_lists) {
      s.lists = {ids.At(image), offsets.At(image), ids.dim(0), *counts.At(image)};
    } else {
      s.radii = radii.At(image);
    }
    return s;
  }
  TileMask Mask(int64_t image) const { return {masks.At(image), masks.size()}; }
};

ffi::Error Forward(ffi::ThreadPool threads, F32 means2d, F32 conics, F32 colors, F32 opacities, F32 depths, F32 limits,
                   S32 radii, Flags masks, S32 gaussian_ids, S32 tile_offsets, S32 count, F32Result out_colors,
                   F32Result out_transmittances, S32Result out_last_ids, int64_t tile_size, double alpha_max,
                   double alpha_min, double transmittance_min, bool blend_last, int64_t max_contributors) {
  return Guard([&] {
    XlaPool pool(threads);
    const Inputs in(Images(out_colors->dimensions(), 3), out_colors->dimensions(), tile_size,
                    {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors}, means2d, conics, colors,
                    opacities, depths, limits, radii, masks, gaussian_ids, tile_offsets, count);
    const int64_t pixels = in.grid.width * in.grid.height, channels = in.colors.dim(1);
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      RasterizeForward(
          inner, in.grid, in.blend, in.Splats(image), in.Mask(image),
          {out_colors->typed_data() + image * pixels * channels, out_transmittances->typed_data() + image * pixels,
           out_last_ids->typed_data() + image * pixels});
    });
  });
}

ffi::Error Backward(ffi::ThreadPool threads, F32 means2d, F32 conics, F32 colors, F32 opacities, F32 depths, F32 limits,
                    S32 radii, Flags masks, S32 gaussian_ids, S32 tile_offsets, S32 count, F32 picture,
                    F32 transmittances, F32 v_picture, F32 v_transmittances, F32Result v_means2d, F32Result v_conics,
                    F32Result v_colors, F32Result v_opacities, F32Result v_absgrads, int64_t tile_size,
                    double alpha_max, double alpha_min, double transmittance_min, bool blend_last,
                    int64_t max_contributors) {
  return Guard([&] {
    XlaPool pool(threads);
    const Inputs in(Images(v_means2d->dimensions(), 2), picture.dimensions(), tile_size,
                    {alpha_max, alpha_min, transmittance_min, blend_last, max_contributors}, means2d, conics, colors,
                    opacities, depths, limits, radii, masks, gaussian_ids, tile_offsets, count);
    const int64_t channels = in.colors.dim(1), n = in.means.dim(0), height = in.grid.height, width = in.grid.width;
    const bool absgrad = v_absgrads->element_count() > 0;
    // Under vmap any of these may be shared between images too.
    const Operand<float> colors_out("picture", picture.typed_data(), picture.dimensions(), 3, in.images);
    const Operand<float> t_out("transmittances", transmittances.typed_data(), transmittances.dimensions(), 2,
                               in.images);
    const Operand<float> v_colors_out("v_picture", v_picture.typed_data(), v_picture.dimensions(), 3, in.images);
    const Operand<float> v_t_out("v_transmittances", v_transmittances.typed_data(), v_transmittances.dimensions(), 2,
                                 in.images);
    v_colors_out.Expect("v_picture", {height, width, channels});
    t_out.Expect("transmittances", {height, width});
    v_t_out.Expect("v_transmittances", {height, width});
    ForEachImage(pool, in.images.count(), [&](Pool* inner, int64_t image) {
      const int64_t s = image * n;
      RasterizeBackward(
          inner, in.grid, in.blend, in.Splats(image), in.Mask(image),
          {colors_out.At(image), t_out.At(image), v_colors_out.At(image), v_t_out.At(image)},
          {v_means2d->typed_data() + s * 2, v_conics->typed_data() + s * 3, v_colors->typed_data() + s * channels,
           v_opacities->typed_data() + s, absgrad ? v_absgrads->typed_data() + s * 2 : nullptr});
    });
  });
}

ffi::Error Intersect(ffi::ThreadPool threads, F32 means2d, S32 radii, F32 depths, F32 conics, F32 opacities,
                     S32Result gaussian_ids, S32Result tile_offsets, S32Result tiles_per_gaussian, S32Result count,
                     int64_t width, int64_t height, int64_t tile_size, double alpha_min) {
  return Guard([&] {
    XlaPool pool(threads);
    const Images images(count->dimensions(), 0);
    const Operand<float> m("means2d", means2d.typed_data(), means2d.dimensions(), 2, images);
    const Operand<int32_t> r("radii", radii.typed_data(), radii.dimensions(), 2, images);
    const Operand<float> d("depths", depths.typed_data(), depths.dimensions(), 1, images);
    const Operand<float> q("conics", conics.typed_data(), conics.dimensions(), 2, images);
    const Operand<float> o("opacities", opacities.typed_data(), opacities.dimensions(), 1, images);
    const int64_t n = m.dim(0), capacity = gaussian_ids->dimensions().back();
    const ImageGrid grid{width, height, tile_size};
    m.Expect("means2d", {n, 2});
    r.Expect("radii", {n, 2});
    ForEachImage(pool, images.count(), [&](Pool* inner, int64_t image) {
      IntersectTiles(
          inner, grid,
          {n, m.At(image), r.At(image), d.dim(0) == n ? d.At(image) : nullptr, q.dim(0) == n ? q.At(image) : nullptr,
           o.dim(0) == n ? o.At(image) : nullptr, alpha_min, capacity},
          {gaussian_ids->typed_data() + image * capacity, tile_offsets->typed_data() + image * (grid.tiles() + 1),
           tiles_per_gaussian->typed_data() + image * n, count->typed_data() + image});
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
      .Arg<S32>()             \
      .Arg<Flags>()           \
      .Arg<S32>()             \
      .Arg<S32>()             \
      .Arg<S32>()
#define JAXSPLAT_BLEND()                 \
  Attr<int64_t>("tile_size")             \
      .Attr<double>("alpha_max")         \
      .Attr<double>("alpha_min")         \
      .Attr<double>("transmittance_min") \
      .Attr<bool>("blend_last")          \
      .Attr<int64_t>("max_contributors")

JAXSPLAT_HANDLER(jaxsplat_rasterize_gaussians_3d_forward, jaxsplat::Forward,
                 JAXSPLAT_OPERANDS().Ret<F32>().Ret<F32>().Ret<S32>().JAXSPLAT_BLEND());
JAXSPLAT_HANDLER(jaxsplat_rasterize_gaussians_3d_backward, jaxsplat::Backward,
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
                     .JAXSPLAT_BLEND());
JAXSPLAT_HANDLER(jaxsplat_intersect_tiles, jaxsplat::Intersect,
                 ffi::Ffi::Bind()
                     .Ctx<ffi::ThreadPool>()
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
