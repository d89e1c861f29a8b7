// Which splats touch which tile, nearest first, for a chunk of images: depth order once, then a stable sort by tile.
#ifndef JAXSPLAT_CUDA_TILE_LISTS_H_
#define JAXSPLAT_CUDA_TILE_LISTS_H_

#include <algorithm>
#include <cstdint>

#include "cuda/batch.h"
#include "cuda/device.h"
#include "cuda/sizes.h"
#include "math/gaussian_2d.h"
#include "math/gaussian_world.h"

namespace jaxsplat::cuda {

// Entries [begin, end) of a tile.
struct TileRange {
  uint32_t begin, end;
};

// A row is a splat, or a face, in an image of the chunk: image * size + id. Each (row, tile) pair is an entry. Those of
// one row have numbers, its slots, one after another.
struct TileLists {
  const Gaussian2d* splats = nullptr;      // [rows]
  const GaussianWorld* world = nullptr;    // [rows] along rays
  const int64_t* anchors = nullptr;        // [images] the pixel whose ray starts at the anchor
  const uint64_t* entries = nullptr;       // by tile; the low 32 bits are the row
  const uint32_t* slots = nullptr;         // of each entry
  int64_t size = 0;                        // number of slots
  const TileRange* ranges = nullptr;       // [images * tiles]
  const uint32_t* order = nullptr;         // rows in the order of their slots; null: as they come
  const int64_t* slot_ends = nullptr;      // [rows] in that order, where the slots of each end
  const int32_t* tiles_touched = nullptr;  // [rows]
  const int64_t* image_ends = nullptr;     // [images] number of intersections up to the end of each image, all of them
};

// Finds the lists, by ellipse if `exact`, else by box. Without a limit the host reads their size: it returns false if
// there are too many entries for a chunk of more than one image, and throws std::invalid_argument if one image alone
// has too many.
bool FindLists(Device& device, const ImageGrid& grid, double alpha_min, bool exact, const SplatBatch& batch,
               Chunk chunk, TileLists* lists);

// The lists made by the caller, checked: throws std::invalid_argument that names what is wrong. With
// `slots` also what the backward pass needs.
TileLists FromGivenLists(Device& device, const ImageGrid& grid, const SplatBatch& batch, Chunk chunk, double alpha_min,
                         bool slots);

// Calls f(chunk), which returns whether the chunk was small enough, for chunks of at most so many that make up all
// images.
template <class F>
void ForEachChunk(int64_t images, int64_t most, const F& f) {
  for (int64_t first = 0; first < images;) {
    const int64_t count = std::min(most, images - first);
    if (f(Chunk{first, count})) {
      first += count;
    } else {
      most = (count + 1) / 2;
    }
  }
}

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_LISTS_H_
