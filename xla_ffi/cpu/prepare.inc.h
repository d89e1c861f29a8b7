// Preparation of splats and their extents in tiles. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/constants.h"
#include "core/simd.h"
#include "cpu/tile_kernels.h"
#include "math/gaussian_2d.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// One vector of splats, field by field.
struct PrepareBatch {
  alignas(64) float x[kLanes], y[kLanes], a[kLanes], b[kLanes], schur[kLanes];
  alignas(64) float opacity[kLanes], mantissa[kLanes], exponent[kLanes];

  void Load(const Splats2d& splats, int64_t id, float inv_alpha_min, int lane) {
    constexpr float kCircle[3] = {1, 0, 1}, kNowhere[2] = {0, 0};
    const float* const conic = splats.conics != nullptr ? splats.conics + id * 3 : kCircle;
    const float* const mean = splats.conics != nullptr ? splats.means + id * 2 : kNowhere;
    x[lane] = mean[0];
    y[lane] = mean[1];
    a[lane] = conic[0];
    b[lane] = conic[1];
    // In double, where the products are exact: the difference keeps its digits for long thin splats.
    const double wide_a = conic[0], wide_b = conic[1];
    schur[lane] = static_cast<float>((wide_a * conic[2] - wide_b * wide_b) / wide_a);
    opacity[lane] = splats.opacities[id];
    const float ratio = opacity[lane] * inv_alpha_min;
    uint32_t bits;
    __builtin_memcpy(&bits, &ratio, sizeof(bits));
    exponent[lane] = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
    bits = (bits & 0x7fffffu) | 0x3f800000u;
    __builtin_memcpy(&mantissa[lane], &bits, sizeof(bits));
  }
};

// Those that are not visible are left as they are: no list has them.
void PrepareSplats(const Splats2d& splats, int64_t begin, int64_t end, double alpha_min, Gaussian2d* out) {
  const float inv_alpha_min = static_cast<float>(1 / alpha_min);
  const int64_t inline_channels = splats.channels <= kInlineChannels ? splats.channels : 0;
  PrepareBatch in;
  int64_t ids[kLanes];
  for (int64_t next = begin; next < end;) {
    int n = 0;
    for (; next < end && n < kLanes; ++next) {
      ids[n] = next;
      n += splats.radii == nullptr || splats.Visible(next);
    }
    if (n == 0) break;
    for (int i = 0; i < kLanes; ++i) in.Load(splats, ids[std::min(i, n - 1)], inv_alpha_min, i);
    const Geometry2d g = Prepare(Vec::Load(in.x), Vec::Load(in.y), Vec::Load(in.a), Vec::Load(in.b),
                                 Vec::Load(in.schur), Vec::Load(in.opacity), Vec(static_cast<float>(alpha_min)),
                                 Log2(Vec::Load(in.mantissa), Vec::Load(in.exponent)));
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
      const float* color = splats.colors + ids[i] * splats.channels;
      for (int64_t c = 0; c < kInlineChannels; ++c) to.color[c] = c < inline_channels ? color[c] : 0.0f;
      float not_finite = 0;  // becomes NaN
      for (int64_t c = 0; c < splats.channels; ++c) not_finite += color[c] * 0.0f;
      if ((drawn >> i & 1) == 0 || not_finite != 0) {
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

// Tiles whose pixel centres come within [low, high], in an image `pixels` wide with `count` tiles.
struct TilesAlong {
  float size, inverse, last_pixel, count;
  TilesAlong(int64_t tile_size, int64_t pixels, int64_t tiles)
      : size(static_cast<float>(tile_size)),
        inverse(1.0f / static_cast<float>(tile_size)),
        last_pixel(static_cast<float>(pixels) - 0.5f),
        count(static_cast<float>(tiles)) {}

  TileSpan Between(float low, float high) const {
    if (!(low <= last_pixel) || !(high >= 0.5f)) return {0, -1};
    // Clamped in floating point first: a far splat must not overflow an integer.
    const float first = std::min(std::max((low - (size - 0.5f)) * inverse, 0.0f), count);
    const float last = std::min((high - 0.5f) * inverse, count - 1.0f);
    return {static_cast<int32_t>(__builtin_ceilf(first)), static_cast<int32_t>(__builtin_floorf(last))};
  }
};

// Exact: a tile counts where the ellipse alpha >= alpha_min meets the rectangle of its pixel centres.
void EllipseRows(const Gaussian2d* splats, const uint32_t* order, const ImageGrid& grid, int64_t begin, int64_t end,
                 TileRows* rows) {
  constexpr int64_t kAhead = 16;
  const TilesAlong tiles(grid.tile_size, grid.height, grid.tiles_y());
  for (int64_t r = begin; r < end; ++r) {
    if (r + kAhead < end) __builtin_prefetch(&splats[order[r + kAhead]]);
    const Gaussian2d& g = splats[order[r]];
    const float reach = g.half_height + kExtentMargin;
    const TileSpan span = tiles.Between(g.y - reach, g.y + reach);
    rows[r] = {span.x0, span.x1};
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
      const int64_t pixels = std::min(grid.tile_size, grid.height - row * grid.tile_size);
      const float y0 = static_cast<float>(row * grid.tile_size) + 0.5f - g.y;
      float left, right;
      BandExtent(g.half_height, g.shear_y, g.l21, g.l22, g.inv_l11, g.level, y0, y0 + static_cast<float>(pixels - 1),
                 &left, &right);
      *spans++ = tiles.Between(g.x + left - kExtentMargin, g.x + right + kExtentMargin);
    }
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
