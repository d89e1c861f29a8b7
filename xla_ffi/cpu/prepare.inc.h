// Preparation of splats and their extents in tiles. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/constants.h"
#include "core/simd.h"
#include "cpu/tile_kernels.h"
#include "math/gaussian_2d.h"
#include "math/tile_extents.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// One vector of splats, field by field.
struct PrepareBatch {
  alignas(64) float x[kLanes], y[kLanes], a[kLanes], b[kLanes], schur[kLanes];
  alignas(64) float opacity[kLanes];

  void Load(const Splats2d& splats, int64_t id, int lane) {
    // Splats along rays may come without an outline on the screen.
    constexpr float kCircle[3] = {1, 0, 1}, kNowhere[2] = {0, 0};
    const bool outlined = splats.conics != nullptr;
    const GaussianFields2d f = FieldsOf(outlined ? splats.means + id * 2 : kNowhere,
                                        outlined ? splats.conics + id * 3 : kCircle, splats.opacities[id]);
    x[lane] = f.x;
    y[lane] = f.y;
    a[lane] = f.a;
    b[lane] = f.b;
    schur[lane] = f.schur;
    opacity[lane] = f.opacity;
  }
};

// Those that are not visible are left as they are: no list has them.
void PrepareSplats(const Splats2d& splats, int64_t begin, int64_t end, double alpha_min, Gaussian2d* out) {
  const float inv_alpha_min = static_cast<float>(1 / alpha_min);
  PrepareBatch in;
  int64_t ids[kLanes];
  for (int64_t next = begin; next < end;) {
    int n = 0;
    for (; next < end && n < kLanes; ++next) {
      ids[n] = next;
      n += splats.radii == nullptr || splats.Visible(next);
    }
    if (n == 0) break;
    for (int i = 0; i < kLanes; ++i) in.Load(splats, ids[std::min(i, n - 1)], i);
    const Vec opacity = Vec::Load(in.opacity);
    const Geometry2d g =
        Prepare(Vec::Load(in.x), Vec::Load(in.y), Vec::Load(in.a), Vec::Load(in.b), Vec::Load(in.schur), opacity,
                Vec(static_cast<float>(alpha_min)), Log2(opacity * Vec(inv_alpha_min)));
    alignas(64) float l11[kLanes], l21[kLanes], l22[kLanes], floor[kLanes];
    alignas(64) float half_height[kLanes], shear_y[kLanes], inv_l11[kLanes], level[kLanes];
    g.l11.Store(l11);
    g.l21.Store(l21);
    g.l22.Store(l22);
    g.floor.Store(floor);
    g.half_height.Store(half_height);
    g.shear_y.Store(shear_y);
    g.inv_l11.Store(inv_l11);
    g.level.Store(level);
    const uint32_t drawn = Bits(g.drawn);
    for (int i = 0; i < n; ++i) {
      Gaussian2d& to = out[ids[i]];
      to.id = static_cast<int32_t>(ids[i]);
      const bool finite = SetColor(splats.colors + ids[i] * splats.channels, splats.channels, &to);
      if ((drawn >> i & 1) == 0 || !finite) {
        SetNothing(&to);
        continue;
      }
      to.x = in.x[i];
      to.y = in.y[i];
      to.opacity = in.opacity[i];
      to.l11 = l11[i];
      to.l21 = l21[i];
      to.l22 = l22[i];
      to.floor = floor[i];
      to.half_height = half_height[i];
      to.shear_y = shear_y[i];
      to.inv_l11 = inv_l11[i];
      to.level = level[i];
      if (splats.conics == nullptr) SetEverywhere(&to);
    }
  }
}

void EllipseRows(const Gaussian2d* splats, const uint32_t* order, const ImageGrid& grid, int64_t begin, int64_t end,
                 TileRows* rows) {
  constexpr int64_t kAhead = 16;
  const TilesAlong tiles(grid.tile_size, grid.height, grid.tiles_y());
  for (int64_t r = begin; r < end; ++r) {
    if (r + kAhead < end) __builtin_prefetch(&splats[order[r + kAhead]]);
    const Gaussian2d& g = splats[order[r]];
    rows[r] = RowsOf(g, tiles);
  }
}

void EllipseSpans(const Gaussian2d* splats, const uint32_t* order, const ImageGrid& grid, int64_t begin, int64_t end,
                  const TileRows* rows, TileSpan* spans) {
  constexpr int64_t kAhead = 16;
  const TilesAlong tiles(grid.tile_size, grid.width, grid.tiles_x());
  for (int64_t r = begin; r < end; ++r) {
    if (r + kAhead < end) __builtin_prefetch(&splats[order[r + kAhead]]);
    const Gaussian2d& g = splats[order[r]];
    for (int64_t row = rows[r].y0; row <= rows[r].y1; ++row) {
      *spans++ = SpanOf(g, grid, tiles, row);
    }
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
