#include "cpu/tile_lists.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace jaxsplat {
namespace internal {
namespace {

constexpr int kDigitBits = 11;
constexpr int kDigits = 1 << kDigitBits;

}  // namespace

void SortPairs(Pool* pool, Scratch& scratch, int64_t n, uint32_t** keys, uint32_t** ids) {
  const Chunks chunks(n, 4 * kGrain, kMostChunks);
  uint32_t* other_keys = scratch.Take<uint32_t>(n);
  uint32_t* other_ids = scratch.Take<uint32_t>(n);
  uint32_t* counts = scratch.Take<uint32_t>(chunks.count * kDigits);  // per chunk and digit
  for (int shift = 0; shift < 32; shift += kDigitBits) {
    const uint32_t* from_keys = *keys;
    const uint32_t* from_ids = *ids;
    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
      uint32_t* count = counts + chunk * kDigits;
      std::fill_n(count, kDigits, 0u);
      for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
        ++count[(from_keys[i] >> shift) & (kDigits - 1)];
      }
    });
    uint32_t at = 0;
    for (int digit = 0; digit < kDigits; ++digit) {
      for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
        at += std::exchange(counts[chunk * kDigits + digit], at);
      }
    }
    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
      uint32_t* next = counts + chunk * kDigits;
      for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
        const uint32_t to = next[(from_keys[i] >> shift) & (kDigits - 1)]++;
        other_keys[to] = from_keys[i];
        other_ids[to] = from_ids[i];
      }
    });
    std::swap(*keys, other_keys);
    std::swap(*ids, other_ids);
  }
}

void Accumulate(int64_t n, int64_t* sums) {
  sums[0] = 0;
  for (int64_t i = 0; i < n; ++i) sums[i + 1] += sums[i];
}

}  // namespace internal

TileLists FromGivenLists(Pool* pool, Scratch& scratch, int64_t size, int64_t tiles, const GivenLists& lists) {
  if (lists.count > lists.capacity) {
    throw std::invalid_argument("tiles: " + std::to_string(lists.count) + " intersections exceed the capacity of " +
                                std::to_string(lists.capacity) + ", so the lists are incomplete");
  }
  int64_t* tile_begin = scratch.Take<int64_t>(tiles + 1);
  for (int64_t t = 0; t <= tiles; ++t) {
    tile_begin[t] = lists.offsets[t];
    if (tile_begin[t] < (t == 0 ? 0 : tile_begin[t - 1]) || tile_begin[t] > lists.capacity) {
      throw std::invalid_argument("tiles.tile_offsets must ascend from 0 to at most the capacity of " +
                                  std::to_string(lists.capacity) + ", got " + std::to_string(tile_begin[t]) + " at " +
                                  std::to_string(t));
    }
  }
  const int64_t entries = tile_begin[tiles];
  // Few chunks: each counts every splat. Their number leaves no trace in the result.
  constexpr int64_t kMostCounts = 8;
  const Chunks chunks(entries - tile_begin[0], 4 * internal::kGrain,
                      pool != nullptr ? std::min(pool->NumThreads(), kMostCounts) : 1);
  auto* next = scratch.Take<uint32_t>(chunks.count * size);  // per chunk and splat: first their number
  auto* slot_begin = scratch.Take<uint32_t>(size + 1);
  auto* list = scratch.Take<TileEntry>(entries);
  const auto for_each = [&](int64_t chunk, const auto& f) {
    const int64_t end = tile_begin[0] + chunks.end(chunk);
    for (int64_t i = tile_begin[0] + chunks.begin(chunk); i < end; ++i) f(i, next + chunk * size);
  };
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    std::fill_n(next + chunk * size, size, 0u);
    for_each(chunk, [&](int64_t i, uint32_t* count) {
      const int32_t id = lists.ids[i];
      if (id < 0 || id >= size) {
        throw std::invalid_argument("tiles.gaussian_ids must lie in [0, " + std::to_string(size) + "), got " +
                                    std::to_string(id) + " at " + std::to_string(i));
      }
      list[i].id = static_cast<uint32_t>(id);
      ++count[id];
    });
  });
  uint32_t slot = 0;
  for (int64_t id = 0; id < size; ++id) {
    slot_begin[id] = slot;
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) slot += std::exchange(next[chunk * size + id], slot);
  }
  slot_begin[size] = slot;
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    for_each(chunk, [&](int64_t i, uint32_t* at) { list[i].slot = at[list[i].id]++; });
  });
  return {entries, tile_begin, list, slot_begin};
}

}  // namespace jaxsplat
