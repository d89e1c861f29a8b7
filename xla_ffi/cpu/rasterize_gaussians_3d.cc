#include "cpu/rasterize_gaussians_3d.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/constants.h"
#include "cpu/scratch.h"
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

Gaussian2d* PrepareSplats(Pool* pool, Scratch& scratch, const Splats2d& splats, const uint32_t* order, int64_t size,
                          double alpha_min) {
  auto* prepared = scratch.Take<Gaussian2d>(size);
  const Chunks chunks(size, kGrain, kMostChunks);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    BestTileKernels().prepare(splats, order, chunks.begin(chunk), chunks.end(chunk), alpha_min, prepared);
  });
  return prepared;
}

TileLists BucketEllipses(Pool* pool, Scratch& scratch, const ImageGrid& grid, const Gaussian2d* splats, int64_t size) {
  return BucketByTile(
      pool, scratch, size, grid.tiles_x(), grid.tiles(),
      [&](int64_t begin, int64_t end, TileRows* rows) { BestTileKernels().rows(splats, grid, begin, end, rows); },
      [&](int64_t begin, int64_t end, const TileRows* rows, TileSpan* spans) {
        BestTileKernels().spans(splats, grid, begin, end, rows, spans);
      });
}

// By the boxes mean +- radii.
TileLists BucketBoxes(Pool* pool, Scratch& scratch, const ImageGrid& grid, const IntersectInput& input,
                      const uint32_t* order, int64_t size) {
  const auto range = [&](int64_t rank, int axis, int64_t pixels, int64_t tiles) {
    const int64_t i = int64_t{order[rank]} * 2 + axis;
    const double radius = input.radii[i], mean = input.means[i], last = static_cast<double>(tiles);
    const double side = static_cast<double>(grid.tile_size);
    if (mean - radius >= static_cast<double>(pixels))
      return TileSpan{0, -1};  // the last tile may reach beyond the image
    const double low = std::clamp(std::floor((mean - radius) / side), 0.0, last);
    const double high = std::clamp(std::ceil((mean + radius) / side), 0.0, last);
    return TileSpan{static_cast<int32_t>(low), static_cast<int32_t>(high) - 1};
  };
  return BucketByTile(
      pool, scratch, size, grid.tiles_x(), grid.tiles(),
      [&](int64_t begin, int64_t end, TileRows* rows) {
        for (int64_t r = begin; r < end; ++r) {
          const TileSpan span = range(r, 1, grid.height, grid.tiles_y());
          rows[r] = {span.x0, span.x1};
        }
      },
      [&](int64_t begin, int64_t end, const TileRows* rows, TileSpan* spans) {
        for (int64_t r = begin; r < end; ++r) {
          for (int32_t y = rows[r].y0; y <= rows[r].y1; ++y) *spans++ = range(r, 0, grid.width, grid.tiles_x());
        }
      });
}

Prepared PrepareWithGivenLists(Pool* pool, Scratch& scratch, const ImageGrid& grid, const BlendRule& blend,
                               const Splats2d& splats) {
  const Gaussian2d* prepared = PrepareSplats(pool, scratch, splats, nullptr, splats.size, blend.alpha_min);
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
  const Gaussian2d* prepared = PrepareSplats(pool, scratch, splats, order, size, blend.alpha_min);
  return {prepared, BucketEllipses(pool, scratch, grid, prepared, size)};
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

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourBits __attribute__((vector_size(16)));
constexpr int kMostFours = (kMomentSlots + kMaxGradientChannels) / 4;

// The sum of slots [begin, end), in order. kWidth is the number of fours in use, or 0: then it is `width`.
template <int kWidth>
void SumSlots(const GradientSlots& slots, int64_t begin, int64_t end, int64_t width, Four* result) {
  Four sum[kWidth > 0 ? kWidth : kMostFours] = {};
  for (int64_t s = begin; s < end; ++s) {
    // Without a branch, which would be hard to predict: an untouched slot holds anything.
    const int32_t on = -int32_t{slots.touched[s]};
    const FourBits mask{on, on, on, on};
    const auto* slot = reinterpret_cast<const FourBits*>(slots.values + s * slots.stride);
    for (int64_t k = 0; k < (kWidth > 0 ? kWidth : width); ++k) sum[k] += reinterpret_cast<Four>(slot[k] & mask);
  }
  std::memcpy(result, sum, sizeof(sum));
}

// Adds the slots of one rank, in the order of its tiles, to the gradient of its splat.
void ReduceRank(const TileLists& lists, const GradientSlots& slots, int64_t rank, int64_t id, const Splats2d& splats,
                const SplatGradient& result) {
  const int64_t begin = lists.slot_begin[rank], end = lists.slot_begin[rank + 1];
  const int64_t width = (kMomentSlots + slots.channels + 3) / 4;
  Four sum[kMostFours];
  width == 3 ? SumSlots<3>(slots, begin, end, width, sum) : SumSlots<0>(slots, begin, end, width, sum);
  Moments2d moments;
  std::memcpy(&moments, sum, sizeof(moments));
  const GaussianGradient2d g = EvaluateVjp(moments, splats.conics + id * 3, splats.opacities[id]);
  // Each chunk of channels adds to what the ones before it left.
  for (int k = 0; k < 2; ++k) result.means[id * 2 + k] += g.mean[k];
  for (int k = 0; k < 3; ++k) result.conics[id * 3 + k] += g.conic[k];
  result.opacities[id] += g.opacity;
  if (result.absgrads != nullptr) {
    result.absgrads[id * 2] += moments.abs_x;
    result.absgrads[id * 2 + 1] += moments.abs_y;
  }
  std::memcpy(result.colors + id * splats.channels + slots.first_channel, sum + kMomentSlots / 4,
              sizeof(float) * static_cast<size_t>(slots.channels));
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
  const int64_t stride = (kMomentSlots + most + 3) / 4 * 4;
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
      constexpr int64_t kAhead = 8;
      for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
        if (lists.slot_begin[r] == lists.slot_begin[r + 1]) continue;
        if (r + kAhead < chunks.end(chunk)) {
          const int64_t ahead = prepared.splats[r + kAhead].id;
          __builtin_prefetch(result.means + ahead * 2, 1);
          __builtin_prefetch(result.conics + ahead * 3, 1);
          __builtin_prefetch(result.opacities + ahead, 1);
          __builtin_prefetch(result.colors + ahead * splats.channels, 1);
          __builtin_prefetch(splats.conics + ahead * 3);
        }
        ReduceRank(lists, slots, r, prepared.splats[r].id, splats, result);
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
  TileLists lists;
  if (input.conics != nullptr) {
    Splats2d splats{};
    splats.size = input.size;
    splats.means = input.means;
    splats.conics = input.conics;
    splats.opacities = input.opacities;
    const Gaussian2d* prepared = PrepareSplats(pool, scratch, splats, order, size, input.alpha_min);
    lists = BucketEllipses(pool, scratch, grid, prepared, size);
  } else {
    lists = BucketBoxes(pool, scratch, grid, input, order, size);
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
