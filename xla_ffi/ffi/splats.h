// What the calls of all rasterizers of splats have in common.
#ifndef JAXSPLAT_FFI_SPLATS_H_
#define JAXSPLAT_FFI_SPLATS_H_

#include <cstdint>
#include <stdexcept>

#include "ffi/call.h"
#include "ops/rasterize_gaussians_3d.h"
#if defined(JAXSPLAT_CUDA)
#include "cuda/rasterize_gaussians_3d.h"
#else
#include "cpu/kept_images.h"
#include "cpu/rasterize_gaussians_3d.h"
#endif

namespace jaxsplat {

inline BlendRule TakeBlendRule(Call& call) {
  return {call.Attribute<double>("alpha_max"), call.Attribute<double>("alpha_min"),
          call.Attribute<double>("transmittance_min"), call.Attribute<bool>("blend_last"),
          call.Attribute<int64_t>("max_contributors")};
}

// The backward pass has one more setting.
inline BlendRule TakeBackwardBlendRule(Call& call) {
  BlendRule blend = TakeBlendRule(call);
  blend.alpha_gradient_max = call.Attribute<double>("alpha_gradient_max");
  return blend;
}

// Which tiles are drawn, and their lists: given, or to be found by the rule.
struct ListOperands {
  Call& call;
  In<int32_t> radii{call, "radii", {kAny, kAny}};
  In<bool> masks{call, "masks", {kAny, kAny}};
  In<int32_t> ids{call, "gaussian_ids", {kAny}}, offsets{call, "tile_offsets", {kAny}}, counts{call, "count", {}};
  int64_t tile_size = call.Attribute<int64_t>("tile_size");
  ListRule rule{call.Attribute<bool>("boxes"), call.Attribute<int64_t>("max_intersections"),
                call.Attribute<int64_t>("max_list_entries")};
  bool given = offsets.dim(0) > 0;

  // Throws unless they are for n splats on this grid.
  void Check(const ImageGrid& grid, int64_t n) const {
#if defined(JAXSPLAT_CUDA)
    if (rule.boxes || rule.most_per_tile > 0) {
      throw std::invalid_argument("tile_assignment=\"box\" and max_list_entries have no kernels for CUDA devices");
    }
#endif
    if (given) {
      offsets.Expect({grid.tiles() + 1});
    } else {
      radii.Expect({n, 2});
    }
    if (masks.size() != 1) masks.Expect({grid.tiles_y(), grid.tiles_x()});
  }

#if defined(JAXSPLAT_CUDA)
  cuda::MaskBatch Mask() const { return {BatchOf(masks), masks.size()}; }
  void AddTo(cuda::SplatBatch& batch) const {
    batch.given_lists = given;
    if (given) {
      batch.ids = BatchOf(ids);
      batch.offsets = BatchOf(offsets);
      batch.counts = BatchOf(counts);
      batch.capacity = ids.dim(0);
    } else {
      batch.radii = BatchOf(radii);
      batch.most_entries = rule.most_entries;
    }
  }
#else
  TileMask Mask(int64_t image) const { return {masks.At(image), masks.size()}; }
  void AddTo(Splats2d& splats, int64_t image) const {
    if (given) {
      splats.lists = {ids.At(image), offsets.At(image), ids.dim(0), *counts.At(image)};
    } else {
      splats.radii = radii.At(image);
      splats.list_rule = rule;
    }
  }
#endif
};

// What the forward pass returns of each image.
struct PictureResults {
  Call& call;
  Out<float> colors{call, "colors", 3}, transmittances{call, "transmittances", 2};
  Out<int32_t> last_ids{call, "last_ids", 2}, left_out{call, "left_out", 0}, list_count{call, "list_count", 0};

  Picture At(int64_t image, float* hits = nullptr) const {
    return {colors.At(image),   transmittances.At(image), last_ids.At(image), hits,
            left_out.At(image), list_count.At(image)};
  }
};

#if defined(JAXSPLAT_CUDA)
// The backward pass makes its lists again: what one call leaves on the device is XLA's when it returns.
inline void RunForward(Executor& executor, const Workspace& workspace, const ImageGrid& grid, const BlendRule& blend,
                       const cuda::SplatBatch& splats, const ListOperands& lists, const Picture& pictures) {
  workspace.Enter(executor);
  cuda::RasterizeForward(executor, grid, blend, splats, lists.Mask(), pictures);
  executor.Fill(pictures.left_out, 0, splats.images);
  executor.Finish();
}
#endif

}  // namespace jaxsplat

#endif  // JAXSPLAT_FFI_SPLATS_H_
