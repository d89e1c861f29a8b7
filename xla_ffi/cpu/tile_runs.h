// The tiles that splats or faces touch, as several threads find them: runs of neighbours in a row of tiles.
#ifndef JAXSPLAT_CPU_TILE_RUNS_H_
#define JAXSPLAT_CPU_TILE_RUNS_H_

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "ops/intersect_tiles.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// Tiles [x, x + width) of one row.
struct TileRun {
  uint32_t id, row, x, width;
};

// All of one image. The runs of each chunk of ids are a list of blocks, in the order of ids.
class TileRuns {
 public:
  TileRuns(Scratch& scratch, const ImageGrid& grid, const Chunks& chunks)
      : grid(grid), chunks(chunks), scratch_(scratch), first_(scratch.Take<Block*>(chunks.count)) {
    std::fill_n(first_, chunks.count, nullptr);
  }

  template <class F>
  void ForEach(int64_t chunk, const F& f) const {
    for (const Block* block = first_[chunk]; block != nullptr; block = block->next) {
      for (const TileRun* run = block->begin; run < block->end; ++run) f(*run);
    }
  }

  // Leaves the runs for which keep(run).
  template <class F>
  void KeepIf(const F& keep) {
    for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
      for (Block* block = first_[chunk]; block != nullptr; block = block->next) {
        block->end = std::remove_if(block->begin, block->end, [&](const TileRun& run) { return !keep(run); });
      }
    }
  }

  const ImageGrid& grid;
  const Chunks chunks;

 private:
  friend class RunWriter;
  struct Block {
    TileRun *begin, *end;
    Block* next;
  };

  Block* Take(int64_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto* const runs = scratch_.Take<TileRun>(size);
    return new (scratch_.Take<Block>(1)) Block{runs, runs, nullptr};
  }

  Scratch& scratch_;
  Block** first_;  // per chunk
  std::mutex mutex_;
};

// Writes the runs of one chunk, id after id. One thread's.
class RunWriter {
 public:
  RunWriter(TileRuns& all, int64_t chunk) : all_(all), link_(&all.first_[chunk]) {}

  const ImageGrid& grid() const { return all_.grid; }

  // Room for n runs, of which those up to the one that End is told become part of the list.
  TileRun* Begin(int64_t n) {
    constexpr int64_t kRuns = 1024;
    if (block_ == nullptr || limit_ - block_->end < n) {
      const int64_t size = std::max(n, kRuns);
      block_ = *link_ = all_.Take(size);
      link_ = &block_->next;
      limit_ = block_->begin + size;
    }
    return block_->end;
  }
  void End(TileRun* end) { block_->end = end; }

  // The rows of tiles [y0, y1], where span(y) are the tiles of one of them.
  template <class F>
  void Write(int64_t id, int32_t y0, int32_t y1, const F& span) {
    TileRun* to = Begin(std::max(0, y1 - y0 + 1) + 1);
    for (int32_t y = y0; y <= y1; ++y) {
      const TileSpan s = span(y);
      to = Append(to, id, y, s.x0, s.x1);
    }
    End(to);
  }

  // Writes the tiles [x0, x1] of a row, if there are any, and returns where the next run goes. Without a branch, which
  // would be hard to predict: there must be room for a run that is not used.
  static TileRun* Append(TileRun* to, int64_t id, int32_t y, int32_t x0, int32_t x1) {
    const int32_t width = std::max(0, x1 - x0 + 1);
    *to = {static_cast<uint32_t>(id), static_cast<uint32_t>(y), static_cast<uint32_t>(x0),
           static_cast<uint32_t>(width)};
    return to + (width > 0);
  }

 private:
  TileRuns& all_;
  TileRuns::Block** link_;
  TileRuns::Block* block_ = nullptr;
  TileRun* limit_ = nullptr;
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_RUNS_H_
