// Preparation of splats and their extents in tiles. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/constants.h"
#include "core/simd.h"
#include "cpu/tile_kernels.h"
#include "cpu/tile_runs.h"
#include "math/gaussian_2d.h"
#include "math/tile_extents.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// One vector of splats, field by field.
struct PrepareBatch {
  int64_t ids[kLanes];
  int n = 0;  // how many there are; the last stands in the other lanes too
  alignas(64) float x[kLanes], y[kLanes], a[kLanes], b[kLanes], schur[kLanes], opacity[kLanes];
  alignas(64) float l11[kLanes], l21[kLanes], l22[kLanes], floor[kLanes];
  alignas(64) float half_height[kLanes], shear_y[kLanes], inv_l11[kLanes], level[kLanes];

  void Load(const Splats2d& splats) {
    // Splats along rays may come without an outline on the screen.
    constexpr float kCircle[3] = {1, 0, 1}, kNowhere[2] = {0, 0};
    const bool outlined = splats.conics != nullptr;
    for (int i = 0; i < kLanes; ++i) {
      const int64_t id = ids[std::min(i, n - 1)];
      const GaussianFields2d f = FieldsOf(outlined ? splats.means + id * 2 : kNowhere,
                                          outlined ? splats.conics + id * 3 : kCircle, splats.opacities[id]);
      x[i] = f.x;
      y[i] = f.y;
      a[i] = f.a;
      b[i] = f.b;
      schur[i] = f.schur;
      opacity[i] = f.opacity;
    }
  }

  // Returns which of them are drawn.
  uint32_t Prepare(double alpha_min) {
    const Vec o = Vec::Load(opacity);
    const Geometry2d g =
        JAXSPLAT_ISA::Prepare(Vec::Load(x), Vec::Load(y), Vec::Load(a), Vec::Load(b), Vec::Load(schur), o,
                              Vec(static_cast<float>(alpha_min)), Log2(o * Vec(static_cast<float>(1 / alpha_min))));
    g.l11.Store(l11);
    g.l21.Store(l21);
    g.l22.Store(l22);
    g.floor.Store(floor);
    g.half_height.Store(half_height);
    g.shear_y.Store(shear_y);
    g.inv_l11.Store(inv_l11);
    g.level.Store(level);
    return Bits(g.drawn);
  }

  void SetEverywhere() {
    Gaussian2d g{};
    jaxsplat::SetEverywhere(&g);
    for (int i = 0; i < kLanes; ++i) {
      x[i] = g.x;
      y[i] = g.y;
      l21[i] = g.l21;
      l22[i] = g.l22;
      half_height[i] = g.half_height;
      shear_y[i] = g.shear_y;
      inv_l11[i] = g.inv_l11;
      level[i] = g.level;
    }
  }

  void Store(int i, Gaussian2d* to) const {
    to->x = x[i];
    to->y = y[i];
    to->opacity = opacity[i];
    to->l11 = l11[i];
    to->l21 = l21[i];
    to->l22 = l22[i];
    to->floor = floor[i];
    to->half_height = half_height[i];
    to->shear_y = shear_y[i];
    to->inv_l11 = inv_l11[i];
    to->level = level[i];
  }

  // The tiles that `drawn` of them touch.
  void WriteRuns(uint32_t drawn, RunWriter& writer) const {
    constexpr int kRows = 8;  // so many from vectors: few splats reach more
    const ImageGrid& grid = writer.grid();
    const TilesAlong rows(grid.tile_size, grid.height, grid.tiles_y());
    const TilesAlong columns(grid.tile_size, grid.width, grid.tiles_x());
    const Extent2d<Vec> g{Vec::Load(x),           Vec::Load(y),       Vec::Load(l21),     Vec::Load(l22),
                          Vec::Load(half_height), Vec::Load(shear_y), Vec::Load(inv_l11), Vec::Load(level)};
    Vec top, bottom;
    RowsOf(g.y, g.half_height, rows, &top, &bottom);
    alignas(64) float y0[kLanes], y1[kLanes], x0[kRows][kLanes], x1[kRows][kLanes];
    top.Store(y0);
    bottom.Store(y1);
    int32_t first[kLanes], count[kLanes], most = 0;
    int64_t total = 0;
    for (int i = 0; i < n; ++i) {
      first[i] = static_cast<int32_t>(y0[i]);
      count[i] = (drawn >> i & 1) != 0 ? std::max(0, static_cast<int32_t>(y1[i]) - first[i] + 1) : 0;
      total += count[i];
      most = std::max(most, count[i]);
    }
    for (int k = 0; k < std::min(most, kRows); ++k) {
      Vec left, right;
      SpanOf(g, rows, columns, top + Vec(static_cast<float>(k)), &left, &right);
      left.Store(x0[k]);
      right.Store(x1[k]);
    }
    TileRun* to = writer.Begin(total + 1);
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < std::min(count[i], kRows); ++k) {
        to =
            RunWriter::Append(to, ids[i], first[i] + k, static_cast<int32_t>(x0[k][i]), static_cast<int32_t>(x1[k][i]));
      }
      const Extent2d<float> e{x[i], y[i], l21[i], l22[i], half_height[i], shear_y[i], inv_l11[i], level[i]};
      for (int k = kRows; k < count[i]; ++k) {
        float left, right;
        SpanOf(e, rows, columns, static_cast<float>(first[i] + k), &left, &right);
        to = RunWriter::Append(to, ids[i], first[i] + k, static_cast<int32_t>(left), static_cast<int32_t>(right));
      }
    }
    writer.End(to);
  }
};

// Those that are not visible are left as they are: no list has them.
void PrepareSplats(const Splats2d& splats, int64_t begin, int64_t end, double alpha_min, const GaussianWorld* world,
                   Gaussian2d* out, RunWriter* runs) {
  PrepareBatch batch;
  for (int64_t next = begin; next < end;) {
    batch.n = 0;
    for (; next < end && batch.n < kLanes; ++next) {
      batch.ids[batch.n] = next;
      batch.n += splats.radii == nullptr || splats.Visible(next);
    }
    if (batch.n == 0) break;
    batch.Load(splats);
    uint32_t drawn = batch.Prepare(alpha_min);
    if (splats.conics == nullptr) batch.SetEverywhere();
    for (int i = 0; i < batch.n; ++i) {
      const int64_t id = batch.ids[i];
      Gaussian2d& to = out[id];
      to.id = static_cast<int32_t>(id);
      const bool finite = SetColor(splats.colors + id * splats.channels, splats.channels, &to);
      if ((drawn >> i & 1) != 0 && finite && (world == nullptr || world[id].drawn())) {
        batch.Store(i, &to);
      } else {
        drawn &= ~(uint32_t{1} << i);
        SetNothing(&to);
      }
    }
    if (runs != nullptr) batch.WriteRuns(drawn, *runs);
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
