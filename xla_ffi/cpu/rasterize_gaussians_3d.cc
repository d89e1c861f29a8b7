#include "cpu/rasterize_gaussians_3d.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/constants.h"
#include "cpu/scratch.h"
#include "cpu/tile_extents.h"
#include "cpu/tile_kernels.h"
#include "cpu/tile_lists.h"

namespace jaxsplat {
namespace {

constexpr int64_t kGrain = 1024;
constexpr int64_t kMostChunks = 64;

// Splats by rank, and their tile lists.
struct Prepared {
  const Gaussian2d* splats;
  TileLists lists;
};

void PrepareColors(const Splats2d& splats, Gaussian2d* g) {
  const int64_t inline_channels = splats.channels <= kInlineChannels ? splats.channels : 0;
  const float* color = splats.colors + int64_t{g->id} * splats.channels;
  for (int64_t c = 0; c < kInlineChannels; ++c) g->color[c] = c < inline_channels ? color[c] : 0.0f;
}

// One splat; returns whether it is drawn.
bool PrepareSplat(const Splats2d& splats, int64_t id, double alpha_min, Gaussian2d* g) {
  g->id = static_cast<int32_t>(id);
  return Prepare(splats.means + id * 2, splats.conics + id * 3, splats.opacities[id], alpha_min, g);
}

// A splat that hits no pixel.
void PrepareNothing(Gaussian2d* g) {
  g->x = g->y = g->l11 = g->l21 = g->shear_y = g->inv_l11 = g->level = g->opacity = 0;
  g->l22 = 1;
  g->floor = 1;  // above every -q
  g->half_height = -1;
}

Prepared PrepareWithGivenLists(Pool* pool, Scratch& scratch, const ImageGrid& grid, const BlendRule& blend,
                               const Splats2d& splats) {
  auto* prepared = scratch.Take<Gaussian2d>(splats.size);
  const Chunks chunks(splats.size, kGrain, kMostChunks);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
      if (!PrepareSplat(splats, i, blend.alpha_min, &prepared[i])) PrepareNothing(&prepared[i]);
      PrepareColors(splats, &prepared[i]);
    }
  });
  return {prepared, FromGivenLists(scratch, splats.size, grid.tiles(), splats.lists)};
}

bool Visible(const int32_t* radii, const float* depths, int64_t i) {
  return radii[2 * i] > 0 && radii[2 * i + 1] > 0 && (depths == nullptr || std::isfinite(depths[i]));
}

Prepared PrepareByDepth(Pool* pool, Scratch& scratch, const ImageGrid& grid, const BlendRule& blend,
                        const Splats2d& splats) {
  uint32_t* order;
  const int64_t size = OrderByDepth(
      pool, scratch, splats.size, splats.depths, [&](int64_t i) { return Visible(splats.radii, splats.depths, i); },
      &order);
  auto* prepared = scratch.Take<Gaussian2d>(size);
  const Chunks chunks(size, kGrain, kMostChunks);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
      if (!PrepareSplat(splats, order[r], blend.alpha_min, &prepared[r])) PrepareNothing(&prepared[r]);
      PrepareColors(splats, &prepared[r]);
    }
  });
  const EllipseExtent extent{prepared, grid};
  const TileLists lists = BucketByTile(
      pool, scratch, size, grid.tiles_x(), grid.tiles(), [&](int64_t r) { return extent.Rows(r); },
      [&](int64_t r, int64_t y) { return extent.Span(r, y); });
  return {prepared, lists};
}

Prepared PrepareImage(Pool* pool, Scratch& scratch, const ImageGrid& grid, const BlendRule& blend,
                      const Splats2d& splats) {
  return splats.lists.ids != nullptr ? PrepareWithGivenLists(pool, scratch, grid, blend, splats)
                                     : PrepareByDepth(pool, scratch, grid, blend, splats);
}

// Calls f(tile) for every tile that is on, the longest lists first so that no thread is left with a long one at the
// end.
template <class F>
void ForEachTile(Pool* pool, Scratch& scratch, const TileLists& lists, int64_t tiles, const TileMask& mask,
                 const F& f) {
  auto* order = scratch.Take<int32_t>(tiles);
  int64_t on = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    if (mask[t]) order[on++] = static_cast<int32_t>(t);
  }
  if (pool != nullptr) {
    const auto length = [&](int32_t t) { return lists.tile_begin[t + 1] - lists.tile_begin[t]; };
    std::stable_sort(order, order + on, [&](int32_t a, int32_t b) { return length(a) > length(b); });
  }
  ParallelFor(pool, on, [&](int64_t i) { f(int64_t{order[i]}); });
}

TileJob MakeJob(const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats, const Prepared& prepared,
                int64_t tile, float* scratch) {
  const int64_t begin = prepared.lists.tile_begin[tile];
  return {grid,
          blend,
          tile,
          prepared.splats,
          prepared.lists.ranks + begin,
          prepared.lists.tile_begin[tile + 1] - begin,
          splats.colors,
          splats.channels,
          scratch};
}

// What a tile that is switched off shows.
void ClearTile(const ImageGrid& grid, int64_t channels, int64_t tile, const Picture& picture) {
  const int64_t x0 = tile % grid.tiles_x() * grid.tile_size, y0 = tile / grid.tiles_x() * grid.tile_size;
  const int64_t x1 = std::min(grid.width, x0 + grid.tile_size), y1 = std::min(grid.height, y0 + grid.tile_size);
  for (int64_t y = y0; y < y1; ++y) {
    const int64_t row = y * grid.width;
    std::fill(picture.colors + (row + x0) * channels, picture.colors + (row + x1) * channels, 0.0f);
    std::fill(picture.transmittances + row + x0, picture.transmittances + row + x1, 1.0f);
    std::fill(picture.last_ids + row + x0, picture.last_ids + row + x1, -1);
  }
}

// The sum of a rank's slots, in the order of its tiles.
void ReduceRank(const TileLists& lists, const GradientSlots& slots, int64_t rank, int64_t id, int64_t all_channels,
                const SplatGradient& result) {
  float sum[kGeometrySlots + kMaxGradientChannels] = {};
  const int64_t width = kGeometrySlots + slots.channels;
  for (int64_t s = lists.slot_begin[rank]; s < lists.slot_begin[rank + 1]; ++s) {
    if (!slots.touched[s]) continue;
    const float* slot = slots.values + s * slots.stride;
    for (int64_t k = 0; k < width; ++k) sum[k] += slot[k];
  }
  // Each chunk of channels adds to what the ones before it left.
  for (int k = 0; k < 2; ++k) result.means[id * 2 + k] += sum[k];
  for (int k = 0; k < 3; ++k) result.conics[id * 3 + k] += sum[2 + k];
  result.opacities[id] += sum[5];
  if (result.absgrads != nullptr) {
    for (int k = 0; k < 2; ++k) result.absgrads[id * 2 + k] += sum[6 + k];
  }
  std::copy_n(sum + kGeometrySlots, slots.channels, result.colors + id * all_channels + slots.first_channel);
}

void ClearGradient(Pool* pool, const Splats2d& splats, const SplatGradient& result) {
  const Chunks chunks(splats.size, kGrain, kMostChunks);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    const int64_t begin = chunks.begin(chunk), n = chunks.end(chunk) - begin;
    std::fill_n(result.means + begin * 2, n * 2, 0.0f);
    std::fill_n(result.conics + begin * 3, n * 3, 0.0f);
    std::fill_n(result.colors + begin * splats.channels, n * splats.channels, 0.0f);
    std::fill_n(result.opacities + begin, n, 0.0f);
    if (result.absgrads != nullptr) std::fill_n(result.absgrads + begin * 2, n * 2, 0.0f);
  });
}

}  // namespace

void RasterizeForward(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                      const TileMask& mask, const Picture& picture) {
  Scratch scratch;
  const Prepared prepared = PrepareImage(pool, scratch, grid, blend, splats);
  const int64_t floats = splats.channels > kInlineChannels ? ScratchFloats(splats.channels) : 0;
  ForEachTile(pool, scratch, prepared.lists, grid.tiles(), mask, [&](int64_t tile) {
    Scratch local;
    BestTileKernels().forward(MakeJob(grid, blend, splats, prepared, tile, local.Take<float>(floats)), picture);
  });
  for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
    if (!mask[tile]) ClearTile(grid, splats.channels, tile, picture);
  }
}

void RasterizeBackward(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                       const TileMask& mask, const PictureGradient& gradient, const SplatGradient& result) {
  ClearGradient(pool, splats, result);
  Scratch scratch;
  const Prepared prepared = PrepareImage(pool, scratch, grid, blend, splats);
  const TileLists& lists = prepared.lists;
  const int64_t most = std::min<int64_t>(splats.channels, kMaxGradientChannels);
  const int64_t stride = (kGeometrySlots + most + 15) / 16 * 16;
  auto* values = scratch.Take<float>(lists.entries * stride);
  auto* touched = scratch.Take<uint8_t>(lists.entries);
  for (int64_t first = 0; first < splats.channels; first += most) {
    const int64_t channels = std::min(most, splats.channels - first);
    std::memset(touched, 0, static_cast<size_t>(lists.entries));
    GradientSlots slots{
        lists.slots, values, stride, touched, splats.conics, first, channels, first == 0, result.absgrads != nullptr};
    ForEachTile(pool, scratch, lists, grid.tiles(), mask, [&](int64_t tile) {
      Scratch local;
      GradientSlots here = slots;
      here.slots += lists.tile_begin[tile];
      BestTileKernels().backward(
          MakeJob(grid, blend, splats, prepared, tile, local.Take<float>(ScratchFloats(channels))), gradient, here);
    });
    const Chunks chunks(lists.size, kGrain, kMostChunks);
    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
      for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
        ReduceRank(lists, slots, r, prepared.splats[r].id, splats.channels, result);
      }
    });
  }
}

void IntersectTiles(Pool* pool, const ImageGrid& grid, const IntersectInput& input, const IntersectOutput& output) {
  Scratch scratch;
  uint32_t* order;
  const int64_t size = OrderByDepth(
      pool, scratch, input.size, input.depths, [&](int64_t i) { return Visible(input.radii, input.depths, i); },
      &order);
  const Chunks chunks(size, kGrain, kMostChunks);
  TileLists lists;
  if (input.conics != nullptr) {
    auto* prepared = scratch.Take<Gaussian2d>(size);
    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
      for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
        const int64_t i = order[r];
        if (!Prepare(input.means + i * 2, input.conics + i * 3, input.opacities[i], input.alpha_min, &prepared[r])) {
          PrepareNothing(&prepared[r]);
        }
      }
    });
    const EllipseExtent extent{prepared, grid};
    lists = BucketByTile(
        pool, scratch, size, grid.tiles_x(), grid.tiles(), [&](int64_t r) { return extent.Rows(r); },
        [&](int64_t r, int64_t y) { return extent.Span(r, y); });
  } else {
    const BoxExtent extent{input.means, input.radii, order, grid};
    lists = BucketByTile(
        pool, scratch, size, grid.tiles_x(), grid.tiles(), [&](int64_t r) { return extent.Rows(r); },
        [&](int64_t r, int64_t y) { return extent.Span(r, y); });
  }
  *output.count = static_cast<int32_t>(lists.entries);
  for (int64_t t = 0; t <= grid.tiles(); ++t) {
    output.tile_offsets[t] = static_cast<int32_t>(std::min(lists.tile_begin[t], input.capacity));
  }
  const int64_t kept = std::min(lists.entries, input.capacity);
  for (int64_t i = 0; i < kept; ++i) output.gaussian_ids[i] = static_cast<int32_t>(order[lists.ranks[i]]);
  std::fill(output.gaussian_ids + kept, output.gaussian_ids + input.capacity, -1);
  std::fill_n(output.tiles_per_gaussian, input.size, 0);
  for (int64_t r = 0; r < size; ++r) {
    output.tiles_per_gaussian[order[r]] = static_cast<int32_t>(lists.slot_begin[r + 1] - lists.slot_begin[r]);
  }
}

}  // namespace jaxsplat
