// Preparation of splats and their extents in tiles. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/constants.h"
#include "core/simd.h"
#include "cpu/tile_kernels.h"
#include "math/gaussian_2d.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// Sixteen splats as the sources are laid out, gathered field by field.
struct PrepareBatch {
  alignas(64) float x[kBlockPixels], y[kBlockPixels], a[kBlockPixels], b[kBlockPixels], schur[kBlockPixels];
  alignas(64) float opacity[kBlockPixels], mantissa[kBlockPixels], exponent[kBlockPixels];

  void Load(const Splats2d& splats, int64_t id, float inv_alpha_min, int lane) {
    const float* conic = splats.conics + id * 3;
    x[lane] = splats.means[id * 2];
    y[lane] = splats.means[id * 2 + 1];
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

// A splat that hits no pixel and touches no tile.
void SetNothing(Gaussian2d* g) {
  g->x = g->y = g->l11 = g->l21 = g->shear_y = g->inv_l11 = g->level = g->opacity = 0;
  g->l22 = 1;
  g->floor = 1;  // above every -q
  g->half_height = -1;
}

void PrepareSplats(const Splats2d& splats, const uint32_t* order, int64_t begin, int64_t end, double alpha_min,
                   Gaussian2d* out) {
  constexpr int64_t kAhead = 32;
  const auto id_of = [&](int64_t r) { return order != nullptr ? int64_t{order[r]} : r; };
  const float inv_alpha_min = static_cast<float>(1 / alpha_min);
  const int64_t inline_channels = splats.channels <= kInlineChannels ? splats.channels : 0;
  PrepareBatch in;
  for (int64_t first = begin; first < end; first += kBlockPixels) {
    const int n = static_cast<int>(std::min<int64_t>(kBlockPixels, end - first));
    for (int i = 0; i < kBlockPixels; ++i) {
      if (first + i + kAhead < end) {
        const int64_t ahead = id_of(first + i + kAhead);
        __builtin_prefetch(splats.means + ahead * 2);
        __builtin_prefetch(splats.conics + ahead * 3);
        __builtin_prefetch(splats.opacities + ahead);
        if (inline_channels > 0) __builtin_prefetch(splats.colors + ahead * splats.channels);
      }
      in.Load(splats, id_of(first + std::min(i, n - 1)), inv_alpha_min, i);
    }
    const Geometry2d g = Prepare(Vec::Load(in.x), Vec::Load(in.y), Vec::Load(in.a), Vec::Load(in.b),
                                 Vec::Load(in.schur), Vec::Load(in.opacity), Vec(static_cast<float>(alpha_min)),
                                 Log2(Vec::Load(in.mantissa), Vec::Load(in.exponent)));
    alignas(64) float l11[kBlockPixels], l21[kBlockPixels], l22[kBlockPixels], floor[kBlockPixels];
    alignas(64) float half_height[kBlockPixels], shear_y[kBlockPixels], inv_l11[kBlockPixels], level[kBlockPixels];
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
      Gaussian2d& to = out[first + i];
      to.id = static_cast<int32_t>(id_of(first + i));
      const float* color = splats.colors + int64_t{to.id} * splats.channels;
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
void EllipseRows(const Gaussian2d* splats, const ImageGrid& grid, int64_t begin, int64_t end, TileRows* rows) {
  const TilesAlong tiles(grid.tile_size, grid.height, grid.tiles_y());
  for (int64_t r = begin; r < end; ++r) {
    const float reach = splats[r].half_height + kExtentMargin;
    const TileSpan span = tiles.Between(splats[r].y - reach, splats[r].y + reach);
    rows[r] = {span.x0, span.x1};
  }
}

void EllipseSpans(const Gaussian2d* splats, const ImageGrid& grid, int64_t begin, int64_t end, const TileRows* rows,
                  TileSpan* spans) {
  const TilesAlong tiles(grid.tile_size, grid.width, grid.tiles_x());
  for (int64_t r = begin; r < end; ++r) {
    const Gaussian2d& g = splats[r];
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
