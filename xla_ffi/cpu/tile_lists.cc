#include "cpu/tile_lists.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "math/tile_extents.h"

namespace jaxsplat {
namespace {

// Grows with the work, not with the number of threads.
constexpr int64_t kGrain = 4096;
constexpr int64_t kMostChunks = 32;

// Stable sort of the numbers from 0 to n - 1 by their keys, which are used up.
const uint32_t* SortByKey(Scratch& scratch, int64_t n, uint32_t* keys) {
  constexpr int kDigitBits = 11, kDigits = 1 << kDigitBits, kPasses = 3;
  constexpr int64_t kFew = 256;  // so few are compared sooner than counted
  auto* ids = scratch.Take<uint32_t>(n);
  if (n < kFew) {
    uint64_t pairs[kFew];
    for (int64_t i = 0; i < n; ++i) pairs[i] = uint64_t{keys[i]} << 32 | static_cast<uint64_t>(i);
    std::sort(pairs, pairs + n);
    for (int64_t i = 0; i < n; ++i) ids[i] = static_cast<uint32_t>(pairs[i]);
    return ids;
  }
  const auto digit = [](uint32_t key, int pass) { return key >> pass * kDigitBits & (kDigits - 1); };
  uint32_t next[kPasses][kDigits] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int pass = 0; pass < kPasses; ++pass) ++next[pass][digit(keys[i], pass)];
  }
  auto* other_ids = scratch.Take<uint32_t>(n);
  auto* other_keys = scratch.Take<uint32_t>(n);
  for (int pass = 0; pass < kPasses; ++pass) {
    uint32_t at = 0;
    for (uint32_t& to : next[pass]) at += std::exchange(to, at);
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t key = keys[i], to = next[pass][digit(key, pass)]++;
      other_keys[to] = key;
      other_ids[to] = pass == 0 ? static_cast<uint32_t>(i) : ids[i];
    }
    std::swap(keys, other_keys);
    std::swap(ids, other_ids);
  }
  return ids;
}

// The runs of one row of tiles, by id. An entry is moved as one word, which the compiler does not see by itself.
struct RowRun {
  uint64_t entry;
  uint32_t x, width;
};

uint64_t Word(const TileEntry& entry) {
  uint64_t word;
  static_assert(sizeof(word) == sizeof(entry));
  std::memcpy(&word, &entry, sizeof(word));
  return word;
}

// The lists of the tiles of one row, from `begin` on; `keys` of its runs are null, or by which to order them.
void ListRow(int64_t tiles, int64_t size, const RowRun* runs, uint32_t* keys, int64_t begin, int64_t* tile_begin,
             TileEntry* list) {
  Scratch scratch;
  const uint32_t* const order = keys != nullptr ? SortByKey(scratch, size, keys) : nullptr;
  // First where runs begin (1 more) and end (1 less), then their number, then where the next entry goes.
  auto* const next = scratch.Take<uint32_t>(tiles + 1);
  std::fill_n(next, tiles + 1, 0u);
  for (int64_t i = 0; i < size; ++i) {
    ++next[runs[i].x];
    --next[runs[i].x + runs[i].width];
  }
  uint32_t count = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    count += next[t];
    next[t] = static_cast<uint32_t>(begin);
    tile_begin[t] = begin;
    begin += count;
  }
  for (int64_t i = 0; i < size; ++i) {
    RowRun run = runs[order != nullptr ? order[i] : i];
    uint32_t* const end = next + run.x + run.width;
    for (uint32_t* to = next + run.x; to < end; ++to, run.entry += Word({0, 1})) {
      std::memcpy(list + (*to)++, &run.entry, sizeof(run.entry));
    }
  }
}

// How many there are of the runs of a row and of their tiles, then where they begin.
struct RowCounts {
  int64_t runs, tiles;
};

}  // namespace

TileLists BucketByTile(Pool* pool, Scratch& result, Scratch& scratch, const TileRuns& all, const float* depths) {
  const Chunks& chunks = all.chunks;
  const int64_t tiles_x = all.grid.tiles_x(), tiles = all.grid.tiles(), rows = all.grid.tiles_y();
  auto* const counts = scratch.Take<RowCounts>(chunks.count * rows);  // per chunk and row
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    RowCounts* const in_row = counts + chunk * rows;
    std::fill_n(in_row, rows, RowCounts{});
    all.ForEach(chunk, [&](const TileRun& run) {
      ++in_row[run.row].runs;
      in_row[run.row].tiles += run.width;
    });
  });
  auto* const slots = scratch.Take<int64_t>(chunks.count + 1);
  std::fill_n(slots, chunks.count + 1, int64_t{0});
  auto* const row_begin = scratch.Take<RowCounts>(rows + 1);
  RowCounts at{};
  for (int64_t y = 0; y < rows; ++y) {
    row_begin[y] = at;
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
      RowCounts& here = counts[chunk * rows + y];
      slots[chunk + 1] += here.tiles;
      at.tiles += here.tiles;
      at.runs += std::exchange(here.runs, at.runs);
    }
  }
  row_begin[rows] = at;
  CheckEntries(at.tiles);
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) slots[chunk + 1] += slots[chunk];

  auto* const slot_begin = result.Take<uint32_t>(chunks.n + 1);
  auto* const runs = scratch.Take<RowRun>(at.runs);
  auto* const keys = depths != nullptr ? scratch.Take<uint32_t>(at.runs) : nullptr;
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    RowCounts* const next = counts + chunk * rows;
    auto slot = static_cast<uint32_t>(slots[chunk]);
    int64_t id = chunks.begin(chunk);
    all.ForEach(chunk, [&](const TileRun& run) {
      while (id <= run.id) slot_begin[id++] = slot;
      const int64_t to = next[run.row].runs++;
      runs[to] = {Word({run.id, slot}), run.x, run.width};
      if (keys != nullptr) keys[to] = DepthKey(depths[run.id]);
      slot += run.width;
    });
    while (id < chunks.end(chunk)) slot_begin[id++] = slot;
  });
  slot_begin[chunks.n] = static_cast<uint32_t>(at.tiles);

  auto* const tile_begin = result.Take<int64_t>(tiles + 1);
  auto* const list = result.Take<TileEntry>(at.tiles);
  ParallelFor(pool, rows, [&](int64_t y) {
    const int64_t begin = row_begin[y].runs;
    ListRow(tiles_x, row_begin[y + 1].runs - begin, runs + begin, keys != nullptr ? keys + begin : nullptr,
            row_begin[y].tiles, tile_begin + y * tiles_x, list);
  });
  tile_begin[tiles] = at.tiles;
  return {at.tiles, tile_begin, list, slot_begin};
}

void KeepNearest(Scratch& scratch, const TileLists& lists, const float* depths, int64_t most, TileRuns& runs) {
  const auto rank = [&](int64_t id) { return uint64_t{DepthKey(depths[id])} << 32 | static_cast<uint64_t>(id); };
  const int64_t n = runs.chunks.n;
  auto* const ranks = scratch.Take<uint64_t>(n);
  for (int64_t i = 0; i < n; ++i) ranks[i] = rank(i);
  std::sort(ranks, ranks + n);
  int64_t fit = 0;
  for (int64_t entries = 0; fit < n; ++fit) {
    const auto id = static_cast<uint32_t>(ranks[fit]);
    entries += lists.slot_begin[id + 1] - lists.slot_begin[id];
    if (entries > most) break;
  }
  runs.KeepIf([&](const TileRun& run) { return fit == n || rank(run.id) < ranks[fit]; });
}

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
  const Chunks chunks(entries - tile_begin[0], 4 * kGrain,
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
