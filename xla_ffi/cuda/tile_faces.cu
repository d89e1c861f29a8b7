#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/device_sort.h"
#include "cuda/tile_entries.h"
#include "cuda/tile_faces.h"

namespace jaxsplat::cuda {
namespace {

// The mesh of one image, found before its faces.
struct MeshImage {
  PixelScale scale;
  int64_t first, count;
  float blur_radius, sigma;
};

// What the kernels that find extents take.
struct FaceExtents {
  ImageGrid grid;
  MeshBatch batch;
  Chunk chunk;
  const MeshImage* images;
  PixelBox* boxes;

  // Calls f(y, tiles of row y) for the rows of tiles that a face may touch.
  template <class F>
  __device__ void ForEachSpan(int64_t row, const F& f) const {
    const PixelBox box = boxes[row];
    if (box.x0 > box.x1) return;
    const MeshImage& image = images[row / batch.size];
    const FaceTiles tiles(grid, image.scale, sqrt(static_cast<double>(image.blur_radius)), Corners(row), box);
    for (int32_t y = tiles.rows.y0; y <= tiles.rows.y1; ++y) f(y, tiles.Span(y));
  }

  __device__ const float* Corners(int64_t row) const {
    const int64_t image = row / batch.size, face = images[image].first + row % batch.size;
    return batch.face_verts.At(batch.axes.Split(chunk.first + image)) + face * 9;
  }
};

__global__ void DescribeImages(ImageGrid grid, MeshBatch batch, Chunk chunk, MeshImage* images) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count) return;
  const ImageIndex index = batch.axes.Split(chunk.first + i);
  const float sigma = batch.sigma.data != nullptr ? *batch.sigma.At(index) : 1.0f;
  images[i] = {ScaleOf(grid, batch.xs.At(index), batch.ys.At(index)), *batch.first.At(index), *batch.count.At(index),
               batch.limits.At(index)[0], sigma};
}

// For each row the pixels that it may touch, and how many tiles.
__global__ void PrepareFaces(FaceExtents extents, bool cull_backfaces, int64_t* counts) {
  const int64_t row = ThreadIndex(), size = extents.batch.size;
  if (row >= extents.chunk.count * size) return;
  const MeshImage& image = extents.images[row / size];
  extents.boxes[row] = {0, 0, -1, -1};
  int64_t touched = 0;
  if (row % size < image.count) {
    const double radius = sqrt(static_cast<double>(image.blur_radius));
    extents.boxes[row] = BoxOf(extents.grid, cull_backfaces, image.scale, radius, extents.Corners(row));
    extents.ForEachSpan(row,
                        [&](int32_t, TileSpan span) { touched += span.x0 <= span.x1 ? span.x1 - span.x0 + 1 : 0; });
  }
  counts[row] = touched;
}

// Sets what is known only when the operands are read: the size of the largest mesh, and whether distances matter.
void ReadImages(Device& device, const MeshImage* images, MeshArguments* a) {
  std::vector<MeshImage> found(static_cast<size_t>(a->chunk.count));
  device.Read(images, a->chunk.count, found.data());
  a->batch.size = 0;
  a->distances = a->batch.neighbors.data != nullptr;
  for (const MeshImage& image : found) {
    CheckMesh(image.first, image.count, a->batch.given, image.blur_radius);
    CheckSigma(image.sigma);
    CheckFaces(image.count);
    a->batch.size = std::max(a->batch.size, image.count);
    a->distances = a->distances || image.blur_radius > 0;
  }
}

}  // namespace

bool FindFaces(Device& device, MeshArguments* a) {
  const Chunk chunk = a->chunk;
  auto* images = device.Take<MeshImage>(chunk.count);
  LaunchEach(DescribeImages, chunk.count, device.stream(), a->grid, a->batch, chunk, images);
  ReadImages(device, images, a);
  const int64_t rows = chunk.count * a->batch.size, tiles = chunk.count * a->grid.tiles();
  const FaceExtents extents{a->grid, a->batch, chunk, images, device.Take<PixelBox>(rows)};
  auto* counts = device.Take<int64_t>(rows);
  auto* ends = device.Take<int64_t>(rows);
  auto* image_ends = device.Take<int64_t>(chunk.count);
  if (rows > 0) {
    LaunchEach(PrepareFaces, rows, device.stream(), extents, a->rule.cull_backfaces, counts);
    InclusiveSum(device, rows, counts, ends);
  }
  FindImageEnds(device, chunk, a->batch.size, ends, image_ends);
  const int64_t size = ReadSize(device, chunk, image_ends);
  if (size > kEntriesInFlight && chunk.count > 1) return false;
  auto* entries = device.Take<uint64_t>(size);
  auto* slots = device.Take<uint32_t>(size);
  auto* ranges = device.Take<TileRange>(tiles);
  if (size > 0) {
    LaunchEach(EmitEntries<FaceExtents>, rows, device.stream(), extents, static_cast<const uint32_t*>(nullptr), ends,
               entries, slots);
  }
  SortByTile(device, size, tiles, &entries, &slots, ranges);
  a->boxes = extents.boxes;
  a->lists.entries = entries;
  a->lists.slots = slots;
  a->lists.size = size;
  a->lists.ranges = ranges;
  a->lists.slot_ends = ends;
  return true;
}

}  // namespace jaxsplat::cuda
