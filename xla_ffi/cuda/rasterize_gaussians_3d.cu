#include <stdexcept>
#include <string>

#include "cuda/rasterize_gaussians_3d.h"
#include "cuda/tile_backward.h"
#include "cuda/tile_forward.h"
#include "cuda/tile_lists.h"

namespace jaxsplat::cuda {
namespace {

int64_t ChunkSize(const SplatBatch& splats, const ImageGrid& grid) {
  return ImagesAtOnce(splats.size, grid.tiles(), std::max(splats.capacity, splats.most_entries));
}

// Calls f(arguments of the kernels) for chunks of images, with their lists.
template <class F>
void ForEachListedChunk(Device& device, const ImageGrid& grid, const BlendRule& blend, const SplatBatch& splats,
                        const MaskBatch& masks, bool slots, const F& f) {
  ForEachChunk(splats.images, ChunkSize(splats, grid), [&](Chunk chunk) {
    device.Rewind();
    TileArguments a{{grid, chunk, {}}, Rule(blend), splats, masks, 0, 0};
    if (splats.given_lists) {
      a.lists = FromGivenLists(device, grid, splats, chunk, blend.alpha_min, slots);
    } else if (!FindLists(device, grid, blend.alpha_min, true, splats, chunk, &a.lists)) {
      return false;
    }
    f(a);
    return true;
  });
}

bool IsGeneral(const BlendRule& rule, const SplatBatch& splats) {
  return rule.blend_last || rule.max_contributors > 0 || rule.ClipsGradients() || splats.depth_limits.data != nullptr ||
         splats.AlongRays();
}

__global__ void WriteIds(Chunk chunk, int64_t size, int64_t capacity, TileLists lists, int32_t* ids) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count * capacity) return;
  const int64_t image = i / capacity, begin = image > 0 ? lists.image_ends[image - 1] : 0;
  const int64_t entry = begin + i % capacity;
  ids[chunk.first * capacity + i] =
      entry < lists.image_ends[image] ? static_cast<int32_t>(static_cast<uint32_t>(lists.entries[entry]) - image * size)
                                      : -1;
}

__global__ void WriteOffsets(Chunk chunk, int64_t tiles, int64_t capacity, TileLists lists, IntersectOutput output) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count * (tiles + 1)) return;
  const int64_t image = i / (tiles + 1), tile = i % (tiles + 1);
  const int64_t begin = image > 0 ? lists.image_ends[image - 1] : 0, end = lists.image_ends[image];
  const int64_t at = (tile < tiles ? lists.ranges[image * tiles + tile].begin : end) - begin;
  output.tile_offsets[chunk.first * (tiles + 1) + i] = static_cast<int32_t>(min(at, capacity));
  if (tile == 0) output.count[chunk.first + image] = static_cast<int32_t>(end - begin);
}

// How many entries the lists of each image have, or would have without a limit.
__global__ void WriteListCounts(SplatBatch batch, Chunk chunk, const int64_t* image_ends, int32_t* counts) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count) return;
  const int64_t found = image_ends != nullptr ? image_ends[i] - (i > 0 ? image_ends[i - 1] : 0)
                                              : *batch.counts.At(batch.axes.Split(chunk.first + i));
  counts[chunk.first + i] = static_cast<int32_t>(min(found, static_cast<int64_t>(INT32_MAX)));
}

}  // namespace

void RasterizeForward(Device& device, const ImageGrid& grid, const BlendRule& blend, const SplatBatch& splats,
                      const MaskBatch& masks, const Picture& pictures) {
  ForEachListedChunk(device, grid, blend, splats, masks, false, [&](const TileArguments& a) {
    LaunchEach(WriteListCounts, a.chunk.count, device.stream(), splats, a.chunk, a.lists.image_ends,
               pictures.list_count);
    BlendTiles(device, a, IsGeneral(blend, splats), pictures);
  });
}

void RasterizeBackward(Device& device, const ImageGrid& grid, const BlendRule& blend, const SplatBatch& splats,
                       const MaskBatch& masks, const PictureGradientBatch& gradients, const SplatGradient& result) {
  // More are differentiated some at a time, where none sees the whole gradient of an alpha.
  if (blend.ClipsGradients() && splats.channels > kInlineChannels) {
    throw std::invalid_argument("on CUDA, blend.alpha_gradient_max takes at most " + std::to_string(kInlineChannels) +
                                " channels, got " + std::to_string(splats.channels));
  }
  ForEachListedChunk(device, grid, blend, splats, masks, true, [&](const TileArguments& a) {
    DifferentiateTiles(device, a, IsGeneral(blend, splats), gradients, result);
  });
}

void IntersectTiles(Device& device, const ImageGrid& grid, const SplatBatch& splats, double alpha_min, int64_t capacity,
                    const IntersectOutput& output) {
  ForEachChunk(splats.images, ChunkSize(splats, grid), [&](Chunk chunk) {
    device.Rewind();
    TileLists lists;
    if (!FindLists(device, grid, alpha_min, splats.conics.data != nullptr, splats, chunk, &lists)) return false;
    const int64_t rows = chunk.count * splats.size;
    LaunchEach(WriteIds, chunk.count * capacity, device.stream(), chunk, splats.size, capacity, lists,
               output.gaussian_ids);
    LaunchEach(WriteOffsets, chunk.count * (grid.tiles() + 1), device.stream(), chunk, grid.tiles(), capacity, lists,
               output);
    if (rows > 0) {
      Check(cudaMemcpyAsync(output.tiles_per_gaussian + chunk.first * splats.size, lists.tiles_touched,
                            static_cast<size_t>(rows) * sizeof(int32_t), cudaMemcpyDeviceToDevice, device.stream()),
            "copy");
    }
    return true;
  });
}

}  // namespace jaxsplat::cuda
