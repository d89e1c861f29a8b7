// Which splats touch which tile, nearest first: depth order once, then a stable bucket by tile.
#ifndef JAXSPLAT_CPU_TILE_LISTS_H_
#define JAXSPLAT_CPU_TILE_LISTS_H_

#include <cstdint>

#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "cpu/tile_kernels.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// Splats have ranks: their position in the order in which they are blended. Each (rank, tile) pair is an entry. The
// entries of one rank are numbered one after another (its slots), and so are those of one tile (its list).
struct TileLists {
  int64_t size = 0;           // number of ranks
  int64_t entries = 0;        // number of (rank, tile) pairs
  const int64_t* tile_begin;  // [tiles + 1] where each tile's list begins
  const uint32_t* ranks;      // [entries] by tile
  const uint32_t* slots;      // [entries] by tile: number of the entry when counted by rank
  const int64_t* slot_begin;  // [size + 1] where the slots of each rank begin
};

// Ids in [0, n) with keep(id) set, ordered by (depth, id), or by id alone without depths. Returns their number.
template <class Keep>
int64_t OrderByDepth(Pool* pool, Scratch& scratch, int64_t n, const float* depths, const Keep& keep, uint32_t** order);

// Buckets ranks by tile. rows(rank) gives the rows of tiles that a rank may touch and span(rank, row) the tiles of one
// of them, empty where x0 > x1.
template <class Rows, class Spans>
TileLists BucketByTile(Pool* pool, Scratch& scratch, int64_t size, int64_t tiles_x, int64_t tiles,
                       const Rows& fill_rows, const Spans& fill_spans);

// The lists made by a caller, checked: throws std::invalid_argument that names what is wrong.
TileLists FromGivenLists(Scratch& scratch, int64_t size, int64_t tiles, const GivenLists& lists);

// ---------------------------------------------------------------------------------------------------------------------

namespace internal {

// Grows with the work, not with the number of threads.
inline constexpr int64_t kGrain = 4096;
inline constexpr int64_t kMostChunks = 32;

// Smaller floats give smaller keys, negative ones included.
inline uint32_t DepthKey(float depth) {
  uint32_t bits;
  __builtin_memcpy(&bits, &depth, sizeof(bits));
  if (depth == 0) bits = 0;  // -0 equals +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Stable radix sort of ids by keys. The results end in *keys and *ids.
void SortPairs(Pool* pool, Scratch& scratch, int64_t n, uint32_t** keys, uint32_t** ids);

[[noreturn]] void ThrowTooMany(int64_t entries);

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
      if (keys != nullptr) keys[at] = internal::DepthKey(depths[i]);
      ids[at++] = static_cast<uint32_t>(i);
    }
  });
  if (keys != nullptr) internal::SortPairs(pool, scratch, size, &keys, &ids);
  *order = ids;
  return size;
}

template <class Rows, class Spans>
TileLists BucketByTile(Pool* pool, Scratch& scratch, int64_t size, int64_t tiles_x, int64_t tiles,
                       const Rows& fill_rows, const Spans& fill_spans) {
  const Chunks chunks(size, internal::kGrain, internal::kMostChunks);
  // Rows of each rank, then the span in each row, kept so that they are computed once.
  TileRows* row_range = scratch.Take<TileRows>(size);
  int64_t* span_begin = scratch.Take<int64_t>(size + 1);
  int64_t* chunk_begin = scratch.Take<int64_t>(chunks.count + 1);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    int64_t total = 0;
    fill_rows(chunks.begin(chunk), chunks.end(chunk), row_range);
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
      span_begin[r] = total;
      total += std::max(0, row_range[r].y1 - row_range[r].y0 + 1);
    }
    chunk_begin[chunk + 1] = total;
  });
  chunk_begin[0] = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) chunk_begin[chunk + 1] += chunk_begin[chunk];
  TileSpan* spans = scratch.Take<TileSpan>(chunk_begin[chunks.count]);
  int64_t* slot_begin = scratch.Take<int64_t>(size + 1);
  int64_t* slot_chunk = scratch.Take<int64_t>(chunks.count + 1);
  uint32_t* counts = scratch.Take<uint32_t>(chunks.count * tiles);  // per chunk and tile
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    uint32_t* count = counts + chunk * tiles;
    std::fill_n(count, tiles, 0u);
    fill_spans(chunks.begin(chunk), chunks.end(chunk), row_range, spans + chunk_begin[chunk]);
    int64_t total = 0;
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
      span_begin[r] += chunk_begin[chunk];
      slot_begin[r] = total;
      const TileSpan* s = spans + span_begin[r];
      for (int32_t y = row_range[r].y0; y <= row_range[r].y1; ++y, ++s) {
        uint32_t* row = count + y * tiles_x;
        for (int32_t x = s->x0; x <= s->x1; ++x) ++row[x];
        total += std::max(0, s->x1 - s->x0 + 1);
      }
    }
    slot_chunk[chunk + 1] = total;
  });
  slot_chunk[0] = 0;
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) slot_chunk[chunk + 1] += slot_chunk[chunk];
  const int64_t entries = slot_chunk[chunks.count];
  if (entries > INT32_MAX) internal::ThrowTooMany(entries);
  // counts becomes where each chunk writes next within each tile.
  int64_t* tile_begin = scratch.Take<int64_t>(tiles + 1);
  int64_t at = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    tile_begin[t] = at;
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
      const uint32_t here = counts[chunk * tiles + t];
      counts[chunk * tiles + t] = static_cast<uint32_t>(at);
      at += here;
    }
  }
  tile_begin[tiles] = at;
  uint32_t* ranks = scratch.Take<uint32_t>(entries);
  uint32_t* slots = scratch.Take<uint32_t>(entries);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    uint32_t* next = counts + chunk * tiles;
    for (int64_t r = chunks.begin(chunk); r < chunks.end(chunk); ++r) {
      slot_begin[r] += slot_chunk[chunk];
      auto slot = static_cast<uint32_t>(slot_begin[r]);
      const TileSpan* s = spans + span_begin[r];
      for (int32_t y = row_range[r].y0; y <= row_range[r].y1; ++y, ++s) {
        uint32_t* row = next + y * tiles_x;
        for (int32_t x = s->x0; x <= s->x1; ++x) {
          const uint32_t position = row[x]++;
          ranks[position] = static_cast<uint32_t>(r);
          slots[position] = slot++;
        }
      }
    }
  });
  slot_begin[size] = entries;
  return {size, entries, tile_begin, ranks, slots, slot_begin};
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_LISTS_H_
