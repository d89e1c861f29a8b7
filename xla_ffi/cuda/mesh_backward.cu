// The gradient of each face from the slots of the pixels that see it: the slots are sorted by face, each warp adds up
// the runs of a face among 32 of them, and then a warp adds up those of each face. Always in the same order.
#include "cuda/device_sort.h"
#include "cuda/rasterize_meshes.h"
#include "cuda/tile_entries.h"
#include "cuda/warp_sum.h"
#include "math/triangle_vjp.h"

namespace jaxsplat::cuda {
namespace {

using namespace JAXSPLAT_ISA;

constexpr int kCornerValues = 9;

// Slots [first, first + size) of a chunk of images.
struct SlotRange {
  Chunk chunk;
  int64_t first, size;
};

// A row is a face of an image of the chunk. Slots without one get the last key.
__global__ void PairSlots(SlotsBatch batch, SlotRange range, uint64_t* keys, uint32_t* places) {
  const int64_t i = ThreadIndex();
  if (i >= range.size) return;
  const int64_t image = (range.first + i) / batch.slots(), slot = (range.first + i) % batch.slots();
  const int32_t face = batch.faces.At(batch.axes.Split(range.chunk.first + image))[slot];
  const int64_t row = face < 0 ? range.chunk.count * batch.faces_given : image * batch.faces_given + face;
  keys[i] = static_cast<uint64_t>(row) << 32;
  places[i] = static_cast<uint32_t>(i);
}

// The gradient of one face from one of its slots.
__device__ void DifferentiateSlot(const SlotsBatch& batch, const SlotRange& range, int64_t face, int64_t place,
                                  float (&values)[kCornerValues]) {
  const int64_t image = (range.first + place) / batch.slots(), slot = (range.first + place) % batch.slots();
  const int64_t pixel = slot / batch.rule.faces_per_pixel;
  const ImageIndex index = batch.axes.Split(range.chunk.first + image);
  const float* const c = batch.face_verts.At(index) + face * kCornerValues;
  const float* const b = batch.v_bary.At(index) + slot * 3;
  const CornerVec v[3] = {
      {Vec(c[0]), Vec(c[1]), Vec(c[2])}, {Vec(c[3]), Vec(c[4]), Vec(c[5])}, {Vec(c[6]), Vec(c[7]), Vec(c[8])}};
  const Vec v_bary[3] = {Vec(b[0]), Vec(b[1]), Vec(b[2])};
  const float v_dist = batch.v_dists.At(index)[slot];
  const bool inside = __float_as_int(batch.dists.At(index)[slot]) < 0;  // by the sign, that of -0 too
  CornerVec gradient[3];
  TriangleVjp(batch.rule, v, Vec(batch.xs.At(index)[pixel % batch.width]),
              Vec(batch.ys.At(index)[pixel / batch.width % batch.height]), Vec(batch.v_depths.At(index)[slot]), v_bary,
              Vec(inside ? -v_dist : v_dist), gradient);
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    values[k * 3] = gradient[k].x.v;
    values[k * 3 + 1] = gradient[k].y.v;
    values[k * 3 + 2] = gradient[k].z.v;
  }
}

// A thread for each slot in the order of the keys. sums[i]: where slot i is the first of its face among those of a
// warp, the sum of these.
__global__ void __launch_bounds__(kThreads)
    SumWarps(SlotsBatch batch, SlotRange range, const uint64_t* keys, const uint32_t* places, float* sums) {
  const int64_t i = ThreadIndex();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t none = range.chunk.count * batch.faces_given;
  const int64_t row = i < range.size ? static_cast<int64_t>(keys[i] >> 32) : none;
  if (!__any_sync(kAllLanes, row < none)) return;
  float values[kCornerValues] = {};
  if (row < none) DifferentiateSlot(batch, range, row % batch.faces_given, places[i], values);
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const bool same = __shfl_down_sync(kAllLanes, row, step) == row && lane + step < kWarp;
#pragma unroll
    for (float& value : values) {
      const float other = __shfl_down_sync(kAllLanes, value, step);
      value += same ? other : 0.0f;
    }
  }
  if (row == none || (lane > 0 && static_cast<int64_t>(keys[i - 1] >> 32) == row)) return;
  for (int k = 0; k < kCornerValues; ++k) sums[i * kCornerValues + k] = values[k];
}

// A warp for each row adds up its sums, and adds them to those of the slots before.
__global__ void SumRows(int64_t rows, const int64_t* ends, const float* sums, float* v_face_verts) {
  const int64_t row = ThreadIndex() / kWarp;
  if (row >= rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t begin = row > 0 ? ends[row - 1] : 0, end = ends[row];
  if (begin == end) return;
  float values[kCornerValues] = {};
  for (int64_t warp = begin / kWarp + lane; warp * kWarp < end; warp += kWarp) {
    const float* const from = sums + max(begin, warp * kWarp) * kCornerValues;
    for (int k = 0; k < kCornerValues; ++k) values[k] += from[k];
  }
  SumLanes<kCornerValues>(values, lane);
  const int own = SumIndex<kCornerValues>(lane);
  if (own >= 0) v_face_verts[row * kCornerValues + own] += values[0];
}

void Differentiate(Device& device, const SlotsBatch& batch, const SlotRange& range, float* v_face_verts) {
  device.Rewind();
  const int64_t rows = range.chunk.count * batch.faces_given;
  auto* keys = device.Take<uint64_t>(range.size);
  auto* places = device.Take<uint32_t>(range.size);
  auto* ends = device.Take<int64_t>(rows);
  auto* sums = device.Take<float>(range.size * kCornerValues);
  LaunchEach(PairSlots, range.size, device.stream(), batch, range, keys, places);
  SortPairs(device, range.size, 32, 32 + Bits(rows), &keys, &places);
  LaunchEach(SumWarps, range.size, device.stream(), batch, range, keys, places, sums);
  FindEnds(device, keys, range.size, rows, ends);
  LaunchEach(SumRows, rows * kWarp, device.stream(), rows, ends, sums, v_face_verts);
}

}  // namespace

void DifferentiateMeshes(Device& device, const SlotsBatch& batch, float* v_face_verts) {
  CheckFaces(batch.faces_given);
  const int64_t gradient = batch.faces_given * kCornerValues;
  device.Fill(v_face_verts, 0, batch.images * gradient);
  if (batch.faces_given == 0) return;
  const int64_t most = std::max<int64_t>(
      1, std::min(kRowsInFlight / batch.faces_given, kSlotsInFlight / std::max<int64_t>(batch.slots(), 1)));
  ForEachChunk(batch.images, most, [&](Chunk chunk) {
    const int64_t slots = chunk.count * batch.slots();
    for (int64_t first = 0; first < slots; first += kSlotsInFlight) {
      const int64_t size = std::min(kSlotsInFlight, slots - first);
      Differentiate(device, batch, {chunk, first, size}, v_face_verts + chunk.first * gradient);
    }
    return true;
  });
}

}  // namespace jaxsplat::cuda
