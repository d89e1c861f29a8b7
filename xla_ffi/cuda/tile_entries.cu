#include <vector>

#include "cuda/device_sort.h"
#include "cuda/tile_entries.h"

namespace jaxsplat::cuda {
namespace {

__global__ void ImageEnds(Chunk chunk, int64_t size, const int64_t* ends, int64_t* image_ends) {
  const int64_t i = ThreadIndex();
  if (i < chunk.count) image_ends[i] = size > 0 ? ends[(i + 1) * size - 1] : 0;
}

// Index of the first of n ascending keys that is not below `key`.
__device__ int64_t LowerBound(const uint64_t* keys, int64_t n, uint64_t key) {
  int64_t low = 0, high = n;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void FindRanges(const uint64_t* entries, int64_t size, int64_t tiles, TileRange* ranges) {
  const int64_t tile = ThreadIndex();
  if (tile >= tiles) return;
  const auto begin = [&](int64_t t) {
    return static_cast<uint32_t>(LowerBound(entries, size, static_cast<uint64_t>(t) << 32));
  };
  ranges[tile] = {begin(tile), begin(tile + 1)};
}

__global__ void EndsOfKeys(const uint64_t* keys, int64_t size, int64_t rows, int64_t* ends) {
  const int64_t row = ThreadIndex();
  if (row < rows) ends[row] = LowerBound(keys, size, static_cast<uint64_t>(row + 1) << 32);
}

}  // namespace

int Bits(int64_t largest) {
  int bits = 0;
  while (largest >> bits > 0) ++bits;
  return bits;
}

void FindImageEnds(Device& device, Chunk chunk, int64_t size, const int64_t* ends, int64_t* image_ends) {
  LaunchEach(ImageEnds, chunk.count, device.stream(), chunk, size, ends, image_ends);
}

int64_t ReadSize(Device& device, Chunk chunk, const int64_t* image_ends) {
  std::vector<int64_t> ends(static_cast<size_t>(chunk.count));
  device.Read(image_ends, chunk.count, ends.data());
  for (size_t i = 0; i < ends.size(); ++i) CheckEntries(ends[i] - (i > 0 ? ends[i - 1] : 0));
  return ends.back();
}

void SortByTile(Device& device, int64_t size, int64_t tiles, uint64_t** entries, uint32_t** slots, TileRange* ranges) {
  if (size > 0) SortPairs(device, size, 32, 32 + Bits(tiles), entries, slots);
  LaunchEach(FindRanges, tiles, device.stream(), *entries, size, tiles, ranges);
}

void FindEnds(Device& device, const uint64_t* keys, int64_t size, int64_t rows, int64_t* ends) {
  LaunchEach(EndsOfKeys, rows, device.stream(), keys, size, rows, ends);
}

}  // namespace jaxsplat::cuda
