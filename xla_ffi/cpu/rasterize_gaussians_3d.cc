#include "cpu/rasterize_gaussians_3d.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/constants.h"
#include "cpu/kept_images.h"
#include "cpu/kernels.h"
#include "cpu/rasterize_gaussians_world.h"
#include "cpu/scratch.h"
#include "cpu/tile_lists.h"
#include "cpu/tile_runs.h"
#include "math/tile_extents.h"

namespace jaxsplat {
namespace {

constexpr int64_t kGrain = 1024;
constexpr int64_t kMostChunks = 64;

Chunks ChunksOf(const Splats2d& splats) { return Chunks(splats.size, kGrain, kMostChunks); }

Gaussian2d* PrepareSplats(Pool* pool, Scratch& scratch, const Splats2d& splats, double alpha_min,
                          const GaussianWorld* world, TileRuns* runs) {
  auto* prepared = scratch.Take<Gaussian2d>(splats.size);
  const Chunks chunks = ChunksOf(splats);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    std::optional<RunWriter> writer;
    if (runs != nullptr) writer.emplace(*runs, chunk);
    BestKernels().prepare(splats, chunks.begin(chunk), chunks.end(chunk), alpha_min, world, prepared,
                          writer ? &*writer : nullptr);
  });
  return prepared;
}

// The tiles of the boxes mean +- radii.
void WriteBoxes(Pool* pool, const Splats2d& splats, TileRuns& runs) {
  const ImageGrid& grid = runs.grid;
  ParallelFor(pool, runs.chunks.count, [&](int64_t chunk) {
    RunWriter writer(runs, chunk);
    for (int64_t i = runs.chunks.begin(chunk); i < runs.chunks.end(chunk); ++i) {
      if (!splats.Visible(i)) continue;
      const float* const mean = splats.means + i * 2;
      const int32_t* const radii = splats.radii + i * 2;
      const TileSpan rows = BoxSpan(mean[1], radii[1], grid.height, grid.tiles_y(), grid.tile_size);
      const TileSpan columns = BoxSpan(mean[0], radii[0], grid.width, grid.tiles_x(), grid.tile_size);
      writer.Write(i, rows.x0, rows.x1, [&](int32_t) { return columns; });
    }
  });
}

PreparedImage PrepareImage(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats) {
  PreparedImage image{};
  Scratch& result = image.scratch;
  image.world = PrepareWorld(pool, result, grid, splats);
  if (splats.lists.ids != nullptr) {
    image.splats = PrepareSplats(pool, result, splats, blend.alpha_min, image.world.splats, nullptr);
    image.lists = FromGivenLists(pool, result, splats.size, grid.tiles(), splats.lists);
    image.list_count = splats.lists.count;
  } else {
    Scratch scratch;  // of what is not kept
    TileRuns runs(scratch, grid, ChunksOf(splats));
    image.splats = PrepareSplats(pool, result, splats, blend.alpha_min, image.world.splats,
                                 splats.list_rule.boxes ? nullptr : &runs);
    if (splats.list_rule.boxes) WriteBoxes(pool, splats, runs);
    image.lists = BucketByTile(pool, result, scratch, runs, splats.depths);
    image.list_count = image.lists.entries;
    if (splats.list_rule.most_entries > 0 && image.list_count > splats.list_rule.most_entries) {
      KeepNearest(scratch, image.lists, splats.depths, splats.list_rule.most_entries, runs);
      image.lists = BucketByTile(pool, result, scratch, runs, splats.depths);
    }
  }
  return image;
}

// A fingerprint costs less than lists, but only those that are found here are kept.
std::optional<Fingerprint> FingerprintIf(bool keep, Pool* pool, const ImageGrid& grid, const BlendRule& blend,
                                         const Splats2d& splats) {
  if (!keep || splats.lists.ids != nullptr) return std::nullopt;
  return FingerprintOf(pool, grid, blend.alpha_min, splats);
}

// Calls f(tile) for every tile that is on. Threads take runs of neighbours, which share splats and gradient slots; the
// runs become shorter towards the end, so that no thread is left with a long one.
template <class F>
void ForEachTile(Pool* pool, Scratch& scratch, const TileLists& lists, int64_t tiles, const TileMask& mask,
                 const F& f) {
  constexpr int64_t kRunsAhead = 4;  // what is left is shared into so many runs per thread
  constexpr int64_t kTileCost = 16;  // of an empty tile, in entries
  const auto cost = [&](int64_t t) { return mask[t] ? lists.tile_begin[t + 1] - lists.tile_begin[t] + kTileCost : 0; };
  int64_t left = 0;
  for (int64_t t = 0; t < tiles; ++t) left += cost(t);
  const int64_t runs_left = pool != nullptr ? kRunsAhead * pool->NumThreads() : 1;
  auto* begin = scratch.Take<int64_t>(tiles + 1);
  int64_t runs = 0;
  for (int64_t t = 0; t < tiles; ++runs) {
    begin[runs] = t;
    const int64_t end = left - left / runs_left;
    do left -= cost(t++);
    while (t < tiles && left > end);
  }
  begin[runs] = tiles;
  ParallelFor(pool, runs, [&](int64_t run) {
    for (int64_t t = begin[run]; t < begin[run + 1]; ++t) {
      if (mask[t]) f(t);
    }
  });
}

struct PixelRect {
  int64_t x0, y0, x1, y1;  // without the last
};

PixelRect PixelsOf(const ImageGrid& grid, int64_t tile) {
  const int64_t x0 = tile % grid.tiles_x() * grid.tile_size, y0 = tile / grid.tiles_x() * grid.tile_size;
  return {x0, y0, std::min(grid.width, x0 + grid.tile_size), std::min(grid.height, y0 + grid.tile_size)};
}

// How many splats of a tile's list, which is in the order of depth, are nearer than the limit of any of its pixels.
int64_t CountInFront(const ImageGrid& grid, const Splats2d& splats, int64_t tile, const TileEntry* list, int64_t size) {
  const PixelRect rect = PixelsOf(grid, tile);
  float limit = -std::numeric_limits<float>::infinity();
  for (int64_t y = rect.y0; y < rect.y1; ++y) {
    for (int64_t x = rect.x0; x < rect.x1; ++x) limit = std::max(limit, splats.depth_limits[y * grid.width + x]);
  }
  return std::partition_point(list, list + size, [&](const TileEntry& e) { return splats.depths[e.id] < limit; }) -
         list;
}

// How many entries of a tile's list are blended: of given ones all.
int64_t CountBlended(const ListRule& rule, const TileLists& lists, int64_t tile) {
  const int64_t size = lists.tile_begin[tile + 1] - lists.tile_begin[tile];
  return rule.most_per_tile > 0 ? std::min(size, rule.most_per_tile) : size;
}

TileJob MakeJob(const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats, const PreparedImage& prepared,
                int64_t tile, float* scratch) {
  const int64_t begin = prepared.lists.tile_begin[tile];
  const TileEntry* list = prepared.lists.list + begin;
  int64_t size = CountBlended(splats.list_rule, prepared.lists, tile);
  if (splats.depth_limits != nullptr && splats.lists.ids == nullptr) {
    size = CountInFront(grid, splats, tile, list, size);
  }
  return {grid,
          blend,
          tile,
          prepared.splats,
          list,
          size,
          splats.colors,
          splats.channels,
          splats.depths,
          splats.depth_limits,
          scratch,
          prepared.world.splats,
          splats.world != nullptr ? splats.world->rays : nullptr,
          prepared.world.anchor};
}

// What a tile that is switched off shows.
void ClearTile(const ImageGrid& grid, int64_t channels, int64_t tile, const Picture& picture) {
  const PixelRect rect = PixelsOf(grid, tile);
  for (int64_t y = rect.y0; y < rect.y1; ++y) {
    const int64_t begin = y * grid.width + rect.x0, end = y * grid.width + rect.x1;
    std::fill(picture.colors + begin * channels, picture.colors + end * channels, 0.0f);
    std::fill(picture.transmittances + begin, picture.transmittances + end, 1.0f);
    std::fill(picture.last_ids + begin, picture.last_ids + end, -1);
    if (picture.hits != nullptr) {
      std::fill(picture.hits + begin * kHitChannels, picture.hits + end * kHitChannels, 0.0f);
    }
  }
}

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourBits __attribute__((vector_size(16)));
constexpr int kMostFours = (kHitMomentSlots + kMaxGradientChannels) / 4;

// The sum of slots [begin, end), in order: `width` fours of each, from the `first` one on. kWidth is the width, or 0.
// Returns whether any of them was touched.
template <int kWidth>
bool SumSlots(const GradientSlots& slots, int64_t begin, int64_t end, int64_t first, int64_t width, Four* result) {
  Four sum[kWidth > 0 ? kWidth : kMostFours] = {};
  int32_t any = 0;
  for (int64_t s = begin; s < end; ++s) {
    // Without a branch, which would be hard to predict: an untouched slot holds anything.
    const int32_t on = -int32_t{slots.touched[s]};
    const FourBits mask{on, on, on, on};
    any |= on;
    const auto* slot = reinterpret_cast<const FourBits*>(slots.values + s * slots.stride) + first;
    for (int64_t k = 0; k < (kWidth > 0 ? kWidth : width); ++k) sum[k] += reinterpret_cast<Four>(slot[k] & mask);
  }
  std::memcpy(result, sum, sizeof(sum));
  return any != 0;
}

int64_t MomentSlots(const SplatGradient& result) {
  if (result.world == nullptr) return sizeof(Moments2d) / sizeof(float);
  return result.world->normals != nullptr ? kHitMomentSlots : kWorldMomentSlots;
}

// The gradient of one splat from its slots, in the order of its tiles.
void ReduceSplat(const PreparedImage& prepared, const GradientSlots& slots, int64_t id, const Splats2d& splats,
                 const SplatGradient& result) {
  const int64_t begin = prepared.lists.slot_begin[id], end = prepared.lists.slot_begin[id + 1];
  const int64_t moment_slots = MomentSlots(result),
                width = std::min<int64_t>((moment_slots + slots.channels + 3) / 4, kMostFours);
  Four sum[kMostFours];
  const bool any = width == 3   ? SumSlots<3>(slots, begin, end, 0, width, sum)
                   : width == 4 ? SumSlots<4>(slots, begin, end, 0, width, sum)
                                : SumSlots<0>(slots, begin, end, 0, width, sum);
  float* const colors = result.colors + id * splats.channels + slots.first_channel;
  int64_t done = std::min(slots.channels, width * 4 - moment_slots);
  std::memcpy(colors, sum + moment_slots / 4, sizeof(float) * static_cast<size_t>(done));
  for (; done < slots.channels; done += kMostFours * 4) {
    const int64_t left = std::min<int64_t>(slots.channels - done, kMostFours * 4);
    Four more[kMostFours];
    SumSlots<0>(slots, begin, end, (moment_slots + done) / 4, (left + 3) / 4, more);
    std::memcpy(colors + done, more, sizeof(float) * static_cast<size_t>(left));
  }
  if (result.world != nullptr) {
    MomentsWorld moments;
    std::memcpy(&moments, sum, sizeof(moments));
    return WriteGradient(splats, prepared.world.anchor, id, moments, any, slots.first_pass, result);
  }
  Moments2d moments;
  std::memcpy(&moments, sum, sizeof(moments));
  // The conic and the opacity of a splat that hits no pixel may be anything.
  const GaussianGradient2d g =
      any ? EvaluateVjp(moments, splats.conics + id * 3, splats.opacities[id]) : GaussianGradient2d{};
  // Each chunk of channels adds to what the ones before it left.
  const auto write = [&](float* to, float value) { *to = slots.first_pass ? value : *to + value; };
  for (int k = 0; k < 2; ++k) write(result.means + id * 2 + k, g.mean[k]);
  for (int k = 0; k < 3; ++k) write(result.conics + id * 3 + k, g.conic[k]);
  write(result.opacities + id, g.opacity);
  if (result.absgrads != nullptr) {
    write(result.absgrads + id * 2, moments.abs_x);
    write(result.absgrads + id * 2 + 1, moments.abs_y);
  }
}

}  // namespace

void RasterizeForward(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                      const TileMask& mask, bool keep, const Picture& picture) {
  PreparedImage prepared = PrepareImage(pool, grid, blend, splats);
  const int64_t floats = splats.channels > kInlineChannels ? ScratchFloats(splats.channels) : 0;
  ForEachTile(pool, prepared.scratch, prepared.lists, grid.tiles(), mask, [&](int64_t tile) {
    Scratch local;
    BestKernels().forward(MakeJob(grid, blend, splats, prepared, tile, local.Take<float>(floats)), picture);
  });
  if (picture.list_count != nullptr) {
    int64_t blended = 0;
    for (int64_t t = 0; t < grid.tiles(); ++t) blended += CountBlended(splats.list_rule, prepared.lists, t);
    *picture.list_count = static_cast<int32_t>(prepared.list_count);
    *picture.left_out = static_cast<int32_t>(prepared.lists.entries - blended);
  }
  for (int64_t tile = 0; tile < grid.tiles(); ++tile) {
    if (!mask[tile]) ClearTile(grid, splats.channels, tile, picture);
  }
  if (const auto fingerprint = FingerprintIf(keep, pool, grid, blend, splats)) Keep(*fingerprint, std::move(prepared));
}

void RasterizeBackward(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                       const TileMask& mask, bool kept, const PictureGradient& gradient, const SplatGradient& result) {
  const auto fingerprint = FingerprintIf(kept, pool, grid, blend, splats);
  std::optional<PreparedImage> found = fingerprint ? TakeKept(*fingerprint) : std::nullopt;
  PreparedImage prepared = found ? std::move(*found) : PrepareImage(pool, grid, blend, splats);
  Scratch scratch;
  const TileLists& lists = prepared.lists;
  // What is made of a gradient at a pixel, its absolute value or a clipped one, needs all of it at once.
  const bool whole = result.absgrads != nullptr || blend.ClipsGradients();
  const int64_t most = whole ? splats.channels : std::min<int64_t>(splats.channels, kMaxGradientChannels);
  const int64_t stride = (MomentSlots(result) + most + 3) / 4 * 4;
  float* const v_rays = result.world != nullptr ? result.world->rays : nullptr;
  if (v_rays != nullptr) std::fill_n(v_rays, grid.width * grid.height * 6, 0.0f);
  auto* values = scratch.Take<float>(lists.entries * stride);
  auto* touched = scratch.Take<uint8_t>(lists.entries);
  for (int64_t first = 0; first < splats.channels; first += most) {
    const int64_t channels = std::min(most, splats.channels - first);
    std::memset(touched, 0, static_cast<size_t>(lists.entries));
    const GradientSlots slots{
        values, stride, touched, splats.conics, first, channels, first == 0, result.absgrads != nullptr, v_rays};
    ForEachTile(pool, scratch, lists, grid.tiles(), mask, [&](int64_t tile) {
      Scratch local;
      BestKernels().backward(MakeJob(grid, blend, splats, prepared, tile, local.Take<float>(ScratchFloats(channels))),
                             gradient, slots);
    });
    const Chunks chunks = ChunksOf(splats);
    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
      for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) ReduceSplat(prepared, slots, i, splats, result);
    });
  }
}

void TraceContributors(Pool* pool, const ImageGrid& grid, const BlendRule& blend, const Splats2d& splats,
                       const TileMask& mask, const Contributors& contributors) {
  PreparedImage prepared = PrepareImage(pool, grid, blend, splats);
  Scratch& scratch = prepared.scratch;
  const TileLists& lists = prepared.lists;
  const int64_t pixels = grid.width * grid.height, listed = pixels * contributors.most;
  std::fill_n(contributors.counts, pixels, 0);
  std::fill_n(contributors.ids, listed, -1);
  std::fill_n(contributors.alphas, listed, 0.0f);
  std::fill_n(contributors.transmittances, listed, 0.0f);
  const TileTrace trace{contributors, scratch.Take<TraceSlot>(lists.entries)};
  std::fill_n(trace.slots, lists.entries, TraceSlot{});
  const Picture picture{nullptr, scratch.Take<float>(pixels), scratch.Take<int32_t>(pixels)};
  ForEachTile(pool, scratch, lists, grid.tiles(), mask, [&](int64_t tile) {
    Scratch local;
    TileJob job = MakeJob(grid, blend, splats, prepared, tile, local.Take<float>(0));
    job.channels = 0;
    job.trace = &trace;
    BestKernels().forward(job, picture);
  });
  for (int64_t i = 0; i < splats.size; ++i) {
    TraceSlot sum{};
    for (int64_t s = lists.slot_begin[i]; s < lists.slot_begin[i + 1]; ++s) {
      sum.weight += trace.slots[s].weight;
      sum.pixels += trace.slots[s].pixels;
    }
    contributors.splat_weights[i] = static_cast<float>(sum.weight);
    contributors.splat_counts[i] = static_cast<int32_t>(sum.pixels);
  }
}

void IntersectTiles(Pool* pool, const ImageGrid& grid, const IntersectInput& input, const IntersectOutput& output) {
  Scratch scratch;
  Splats2d splats{};
  splats.size = input.size;
  splats.means = input.means;
  splats.radii = input.radii;
  splats.depths = input.depths;
  splats.conics = input.conics;
  splats.opacities = input.opacities;
  TileRuns runs(scratch, grid, ChunksOf(splats));
  if (input.conics != nullptr) {
    PrepareSplats(pool, scratch, splats, input.alpha_min, nullptr, &runs);
  } else {
    WriteBoxes(pool, splats, runs);
  }
  const TileLists lists = BucketByTile(pool, scratch, scratch, runs, input.depths);
  *output.count = static_cast<int32_t>(lists.entries);
  for (int64_t t = 0; t <= grid.tiles(); ++t) {
    output.tile_offsets[t] = static_cast<int32_t>(std::min(lists.tile_begin[t], input.capacity));
  }
  const int64_t kept = std::min(lists.entries, input.capacity);
  for (int64_t i = 0; i < kept; ++i) output.gaussian_ids[i] = static_cast<int32_t>(lists.list[i].id);
  std::fill(output.gaussian_ids + kept, output.gaussian_ids + input.capacity, -1);
  for (int64_t i = 0; i < input.size; ++i) {
    output.tiles_per_gaussian[i] = static_cast<int32_t>(lists.slot_begin[i + 1] - lists.slot_begin[i]);
  }
}

}  // namespace jaxsplat
