// What the forward pass prepared of an image, kept for the backward pass: it takes a third of the time of both when the
// splats are small. The lists are a function of the operands, so they are found again by a fingerprint of these; where
// they are not found, they are made anew, with the same result.
#ifndef JAXSPLAT_CPU_KEPT_IMAGES_H_
#define JAXSPLAT_CPU_KEPT_IMAGES_H_

#include <cstdint>
#include <optional>

#include "cpu/parallel.h"
#include "cpu/rasterize_gaussians_world.h"
#include "cpu/scratch.h"
#include "cpu/tile_lists.h"
#include "math/gaussian_2d.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat {

// Splats by id and their tile lists, in memory of their own.
struct PreparedImage {
  Scratch scratch;
  const Gaussian2d* splats;
  PreparedWorld world;  // of splats along rays
  TileLists lists;
  int64_t list_count;  // entries that the lists would have without a limit
};

// 128 bits of everything that a prepared image depends on.
struct Fingerprint {
  uint64_t first, second;
  bool operator==(const Fingerprint& other) const { return first == other.first && second == other.second; }
};
Fingerprint FingerprintOf(Pool* pool, const ImageGrid& grid, double alpha_min, const Splats2d& splats);

inline constexpr int64_t kMostKeptImages = 16;

// Keeps an image for one TakeKept. The oldest go when there are too many, or when they hold too much memory.
void Keep(const Fingerprint& fingerprint, PreparedImage image);
std::optional<PreparedImage> TakeKept(const Fingerprint& fingerprint);

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_KEPT_IMAGES_H_
