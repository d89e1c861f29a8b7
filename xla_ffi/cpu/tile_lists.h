// Which splats touch which tile, nearest first: depth order once, then a stable bucket by tile.
#ifndef JAXSPLAT_CPU_TILE_LISTS_H_
#define JAXSPLAT_CPU_TILE_LISTS_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "cpu/tile_kernels.h"
#include "math/tile_extents.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// Each (splat, tile) pair is an entry. Those of one splat have numbers, its slots, one after another; those of one tile
// are its list.
struct TileLists {
  int64_t entries = 0;
  const int64_t* tile_begin;   // [tiles + 1] where each tile's list begins
  const TileEntry* list;       // [entries] by tile, in the order in which they are blended
  const uint32_t* slot_begin;  // [N + 1] where each splat's slots begin, by id
};

// Ids in [0, n) with keep(id) set, ordered by (depth, id), or by id alone without depths. Returns their number.
template <class Keep>
int64_t OrderByDepth(Pool* pool, Scratch& scratch, int64_t n, const float* depths, const Keep& keep, uint32_t** order);

// Lists the splats of each tile in the order given: `size` of the n splats, the others touching no tile. For positions
// [begin, end) of the order, fill_rows(begin, end, rows) writes the rows of tiles that each splat may touch, and
// fill_spans(begin, end, rows, spans) the tiles of one of these rows after another, empty where x0 > x1.
template <class Rows, class Spans>
TileLists BucketByTile(Pool* pool, Scratch& scratch, int64_t n, const uint32_t* order, int64_t size, int64_t tiles_x,
                       int64_t tiles, const Rows& fill_rows, const Spans& fill_spans);

// The lists made by a caller, checked: throws std::invalid_argument that names what is wrong.
TileLists FromGivenLists(Pool* pool, Scratch& scratch, int64_t size, int64_t tiles, const GivenLists& lists);

// ---------------------------------------------------------------------------------------------------------------------

namespace internal {

// Grows with the work, not with the number of threads.
inline constexpr int64_t kGrain = 4096;
inline constexpr int64_t kMostChunks = 32;

// Stable radix sort of ids by keys. The results end in *keys and *ids.
void SortPairs(Pool* pool, Scratch& scratch, int64_t n, uint32_t** keys, uint32_t** ids);

// Turns the numbers in sums[1, n] into where each begins, sums[n] being their total.
void Accumulate(int64_t n, int64_t* sums);

}  // namespace internal

template <class Keep>
int64_t OrderByDepth(Pool* pool, Scratch& scratch, int64_t n, const float* depths, const Keep& keep, uint32_t** order) {
  const Chunks chunks(n, internal::kGrain, internal::kMostChunks);
  int64_t* begin = scratch.Take<int64_t>(chunks.count + 1);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    int64_t kept = 0;
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) kept += keep(i);
    begin[chunk + 1] = kept;
  });
  begin[0] = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) begin[chunk + 1] += begin[chunk];
  const int64_t size = begin[chunks.count];
  uint32_t* ids = scratch.Take<uint32_t>(size);
  uint32_t* keys = depths != nullptr ? scratch.Take<uint32_t>(size) : nullptr;
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    int64_t at = begin[chunk];
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
      if (!keep(i)) continue;
      if (keys != nullptr) keys[at] = DepthKey(depths[i]);
      ids[at++] = static_cast<uint32_t>(i);
    }
  });
  if (keys != nullptr) internal::SortPairs(pool, scratch, size, &keys, &ids);
  *order = ids;
  return size;
}

template <class Rows, class Spans>
TileLists BucketByTile(Pool* pool, Scratch& scratch, int64_t n, const uint32_t* order, int64_t size, int64_t tiles_x,
                       int64_t tiles, const Rows& fill_rows, const Spans& fill_spans) {
  const Chunks chunks(size, internal::kGrain, internal::kMostChunks);
  // Rows of each splat, then the span in each row, kept so that they are computed once.
  auto* rows = scratch.Take<TileRows>(size);
  auto* span_begin = scratch.Take<int64_t>(chunks.count + 1);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    fill_rows(chunks.begin(chunk), chunks.end(chunk), rows);
    int64_t total = 0;
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) total += std::max(0, rows[r].y1 - rows[r].y0 + 1);
    span_begin[chunk + 1] = total;
  });
  internal::Accumulate(chunks.count, span_begin);
  auto* spans = scratch.Take<TileSpan>(span_begin[chunks.count]);
  // Per chunk and tile, in rows with one more: first where spans begin (1 more) and end (1 less), then their number,
  // then where the next entry goes.
  const int64_t stride = tiles_x + 1, cells = tiles / tiles_x * stride;
  auto* next = scratch.Take<uint32_t>(chunks.count * cells);
  auto* slot_begin = scratch.Take<uint32_t>(n + 1);  // by id: first their number
  std::fill_n(slot_begin, n + 1, 0u);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    uint32_t* const cell = next + chunk * cells;
    std::fill_n(cell, cells, 0u);
    TileSpan* span = spans + span_begin[chunk];
    fill_spans(chunks.begin(chunk), chunks.end(chunk), rows, span);
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
      int32_t touched = 0;
      for (int32_t y = rows[r].y0; y <= rows[r].y1; ++y, ++span) {
        const int32_t width = std::max(0, span->x1 - span->x0 + 1);
        ++cell[y * stride + span->x0];
        --cell[y * stride + span->x0 + width];
        touched += width;
      }
      slot_begin[order[r]] = static_cast<uint32_t>(touched);
    }
    for (int64_t i = 0; i < cells; ++i) {
      if (i % stride != 0) cell[i] += cell[i - 1];
    }
  });
  auto* tile_begin = scratch.Take<int64_t>(tiles + 1);
  int64_t at = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    tile_begin[t] = at;
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
      at += std::exchange(next[chunk * cells + t / tiles_x * stride + t % tiles_x], static_cast<uint32_t>(at));
    }
  }
  tile_begin[tiles] = at;
  CheckEntries(at);
  uint32_t slot = 0;
  for (int64_t i = 0; i <= n; ++i) slot += std::exchange(slot_begin[i], slot);
  auto* list = scratch.Take<TileEntry>(at);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    const TileSpan* span = spans + span_begin[chunk];
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
      TileEntry entry{order[r], slot_begin[order[r]]};
      for (int32_t y = rows[r].y0; y <= rows[r].y1; ++y, ++span) {
        uint32_t* row = next + chunk * cells + y * stride;
        for (int32_t x = span->x0; x <= span->x1; ++x, ++entry.slot) list[row[x]++] = entry;
      }
    }
  });
  return {at, tile_begin, list, slot_begin};
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_LISTS_H_
