// Sizes of what the kernels for CUDA devices work on at once, without CUDA: the module for CPUs tells Python how much
// memory a call with lists of a fixed capacity takes.
#ifndef JAXSPLAT_CUDA_SIZES_H_
#define JAXSPLAT_CUDA_SIZES_H_

#include <algorithm>
#include <cstdint>

#include "math/gaussian_2d.h"
#include "math/gaussian_world.h"
#include "ops/rasterize_gaussians_3d.h"

// Tests lower it, and so see images worked on some at a time.
#ifndef JAXSPLAT_ENTRIES_IN_FLIGHT
#define JAXSPLAT_ENTRIES_IN_FLIGHT (int64_t{1} << 25)
#endif

namespace jaxsplat::cuda {

// A block of threads has one for each pixel of a tile, or of a part of it where the tile has more than kPartSide^2.
inline constexpr int kPartSide = 16;

// More channels than are stored in the splat are worked on in chunks of so many.
inline constexpr int kWideChannels = 16;

// What limits the memory that is used at once.
inline constexpr int64_t kRowsInFlight = int64_t{1} << 22;
inline constexpr int64_t kTilesInFlight = int64_t{1} << 24;
inline constexpr int64_t kEntriesInFlight = JAXSPLAT_ENTRIES_IN_FLIGHT;
// Slots of pixels that see faces, which take more memory each.
inline constexpr int64_t kSlotsInFlight = std::max<int64_t>(kEntriesInFlight / 16, 1024);

// How many images are worked on together, each with so many splats and at most so many entries.
inline int64_t ImagesAtOnce(int64_t size, int64_t tiles, int64_t entries) {
  const int64_t by_rows = kRowsInFlight / std::max<int64_t>(size, 1), by_tiles = kTilesInFlight / tiles,
                by_entries = kEntriesInFlight / std::max<int64_t>(entries, 1);
  return std::max<int64_t>(1, std::min({by_rows, by_tiles, by_entries}));
}

// Floats of the moments in such a slot.
inline constexpr int kScreenSlotMoments = sizeof(Moments2d) / sizeof(float), kRaySlotMoments = 13;

// Floats of the gradient of one splat from one tile.
inline int SlotStride(int moments, int64_t channels) {
  return moments + (channels <= kInlineChannels ? kInlineChannels : kWideChannels);
}

// Upper bound of the bytes that a call takes whose lists have at most `entries` entries an image. What is taken is
// checked against it, so that too low a bound is an error, never damage.
inline int64_t WorkspaceBytes(const ImageGrid& grid, int64_t images, int64_t size, int64_t entries, bool backward,
                              bool rays, int64_t channels) {
  // Splat, key and row (twice each, to sort them), what it touches, counts and sums of counts; key and slot, likewise.
  constexpr int64_t kRow = sizeof(Gaussian2d) + 2 * (8 + 4) + 4 + 3 * 8, kEntry = 2 * (8 + 4), kTile = 8,
                    kImage = 2 * 8;
  constexpr int64_t kSorting = 1, kSlack = int64_t{1} << 20;  // of CUB, an element and at least
  const int64_t slot = SlotStride(rays ? kRaySlotMoments : kScreenSlotMoments, channels) * 4 + 1;
  const int64_t world = rays ? sizeof(GaussianWorld) : 0;
  const int64_t at_once = std::min(images, ImagesAtOnce(size, grid.tiles(), entries));
  const int64_t side = (grid.tile_size + kPartSide - 1) / kPartSide, slots = backward ? side * side : 0;
  return at_once * (size * (kRow + world + kSorting) + grid.tiles() * kTile + kImage +
                    entries * (kEntry + kSorting + slots * slot)) +
         kSlack;
}

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_SIZES_H_
