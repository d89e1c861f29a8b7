// Numbers that more than one kernel needs, each with its reason. Their Python twins live in jaxsplat/_constants.py.
#ifndef JAXSPLAT_CORE_CONSTANTS_H_
#define JAXSPLAT_CORE_CONSTANTS_H_

namespace jaxsplat {

// A 4x4 block of pixels is what the SIMD lanes work on at once: of all shapes that fill 16 lanes it wastes the fewest.
inline constexpr int kBlockSide = 4;
inline constexpr int kBlockPixels = kBlockSide * kBlockSide;

// One bit per block of a tile has to fit into 64 bits.
inline constexpr int kMaxTileSize = 32;
inline constexpr int kMaxBlocks = (kMaxTileSize / kBlockSide) * (kMaxTileSize / kBlockSide);

// Splats of a tile are packed and culled in batches that stay in the first-level cache, one bit each of a 64-bit word.
inline constexpr int kBatch = 64;

// More channels than this are differentiated in chunks, so that the per-intersection slots stay small.
inline constexpr int kMaxGradientChannels = 32;

// Extents are widened by this many pixels: rounding may then add a tile or a block, and never lose one.
inline constexpr float kExtentMargin = 0.01f;

// Triangles of this area or less are not drawn, nor are those with a depth below; no denominator is smaller.
inline constexpr float kTriangleEpsilon = 1e-8f;

// Smallest sum that clipped barycentric coordinates are divided by.
inline constexpr float kBarycentricSumMin = 1e-5f;

}  // namespace jaxsplat

#endif  // JAXSPLAT_CORE_CONSTANTS_H_
