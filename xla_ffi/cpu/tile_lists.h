// Which splats touch which tile, nearest first: a bucket by row of tiles, then the order of depth within the row, then
// a stable bucket by tile. What is sorted and scattered is small enough for the cache, and nothing is looked up by id.
#ifndef JAXSPLAT_CPU_TILE_LISTS_H_
#define JAXSPLAT_CPU_TILE_LISTS_H_

#include <cstdint>

#include "cpu/parallel.h"
#include "cpu/scratch.h"
#include "cpu/tile_kernels.h"
#include "cpu/tile_runs.h"
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

// Lists what touches each tile, by (depth, id), or by id alone without depths. The lists take memory of `result`.
TileLists BucketByTile(Pool* pool, Scratch& result, Scratch& scratch, const TileRuns& runs, const float* depths);

// Leaves the runs of the nearest splats, as many as have no more than `most` entries in the lists together.
void KeepNearest(Scratch& scratch, const TileLists& lists, const float* depths, int64_t most, TileRuns& runs);

// The lists made by a caller, checked: throws std::invalid_argument that names what is wrong.
TileLists FromGivenLists(Pool* pool, Scratch& scratch, int64_t size, int64_t tiles, const GivenLists& lists);

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_TILE_LISTS_H_
