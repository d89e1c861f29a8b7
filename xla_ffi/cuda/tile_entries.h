// From what each row touches to the lists of tiles: entries are emitted row by row, and sorted by tile alone, so that
// each list has them in the order of the rows.
#ifndef JAXSPLAT_CUDA_TILE_ENTRIES_H_
#define JAXSPLAT_CUDA_TILE_ENTRIES_H_

#include <cstdint>

#include "cuda/batch.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/tile_lists.h"
#include "ops/intersect_tiles.h"

namespace jaxsplat::cuda {

// The number of bits that numbers up to the largest have.
int Bits(int64_t largest);

// image_ends[image] = how many entries there are up to the end of each image with `size` rows, of which `ends` tells
// that of each row.
void FindImageEnds(Device& device, Chunk chunk, int64_t size, const int64_t* ends, int64_t* image_ends);

// The number of entries of all images, read by the host. Throws std::invalid_argument if one image has too many.
int64_t ReadSize(Device& device, Chunk chunk, const int64_t* image_ends);

// Sorts the entries with their slots, and finds the range of each tile. The results may be in other memory than before.
void SortByTile(Device& device, int64_t size, int64_t tiles, uint64_t** entries, uint32_t** slots, TileRange* ranges);

// ends[row] = where the keys row << 32 end.
void FindEnds(Device& device, const uint64_t* keys, int64_t size, int64_t rows, int64_t* ends);

// The entries of each row, row by row in their order; null: as they come.
template <class Extents>
__global__ void EmitEntries(Extents extents, const uint32_t* order, const int64_t* ends, uint64_t* entries,
                            uint32_t* slots) {
  const int64_t size = extents.batch.size, i = ThreadIndex();
  if (i >= extents.chunk.count * size) return;
  const uint32_t row = order == nullptr ? static_cast<uint32_t>(i) : order[i];
  int64_t at = i > 0 ? ends[i - 1] : 0;
  if (at == ends[i]) return;
  const uint64_t first_tile = static_cast<uint64_t>(row / size * extents.grid.tiles());
  extents.ForEachSpan(row, [&](int32_t y, TileSpan span) {
    for (int32_t x = span.x0; x <= span.x1; ++x, ++at) {
      const uint64_t tile = first_tile + static_cast<uint64_t>(y) * static_cast<uint64_t>(extents.grid.tiles_x()) +
                            static_cast<uint64_t>(x);
      entries[at] = tile << 32 | row;
      slots[at] = static_cast<uint32_t>(at);
    }
  });
}

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_ENTRIES_H_
