// Soft silhouettes: each pixel sums over all faces that it sees; in the backward pass each face sums over its pixels,
// lanes of a warp, warps of a block and tiles, always in the same order.
#include "cuda/tile_faces.h"
#include "cuda/warp_sum.h"
#include "math/triangle_vjp.h"

namespace jaxsplat::cuda {
namespace {

// Faces that a block works on between barriers: one bit each of a word.
constexpr int kRun = 32;
// x and y of the corners.
constexpr int kSums = 6;

__global__ void __launch_bounds__(kThreads) CoverPixels(MeshArguments a, float* transmittances) {
  __shared__ FaceBatch<kRun, true> batch;
  const MeshPixel me(a);
  const Vec scale(-1.0f / *a.batch.sigma.At(me.index));
  Vec sum(0.0f);
  ForEachFace(
      a, me, me.range.end, batch,
      [&](int i) {
        const TriangleHit found = batch.At(i, a, me);
        if (found.hit.v) sum = sum + Coverage(found.SignedDistance() * scale).softplus;
      },
      [](uint32_t, int) {});
  if (!me.inside) return;
  transmittances[(a.chunk.first + me.image) * a.grid.width * a.grid.height + me.pixel] = ExpOfMinus(sum).v;
}

// slots: of each entry and each part of its tile [kSums], zeros where no pixel sees the face.
__global__ void __launch_bounds__(kThreads)
    DifferentiateTiles(MeshArguments a, Batched<float> transmittances, Batched<float> v_transmittances, float* slots) {
  __shared__ FaceBatch<kRun, true> batch;
  __shared__ float partial[kMostWarps][kRun][kSums];
  __shared__ uint32_t hits[kMostWarps];
  const MeshPixel me(a);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % kWarp, warp = thread / kWarp, sum_index = SumIndex<kSums>(lane);
  const Vec scale(-1.0f / *a.batch.sigma.At(me.index)), zero(0.0f);
  // The transmittance times its cotangent.
  Vec weight(0.0f);
  if (me.inside) {
    weight = Vec(transmittances.At(me.index)[me.pixel]) * Vec(v_transmittances.At(me.index)[me.pixel]);
  }
  uint32_t warp_hits = 0;
  const auto see = [&](int i) {
    const TriangleHit found = batch.At(i, a, me);
    if (!__any_sync(kAllLanes, found.hit.v)) return;
    float sums[kSums] = {};
    if (found.hit.v) {
      // The transmittance falls by coverage / sigma as the face comes nearer by 1.
      const Vec slope = weight * Coverage(found.SignedDistance() * scale).sigmoid * (zero - scale);
      const float* const c = batch.faces[i].corners;
      const CornerVec v[3] = {
          {Vec(c[0]), Vec(c[1]), Vec(c[2])}, {Vec(c[3]), Vec(c[4]), Vec(c[5])}, {Vec(c[6]), Vec(c[7]), Vec(c[8])}};
      CornerVec gradient[3] = {{zero, zero, zero}, {zero, zero, zero}, {zero, zero, zero}};
      OutlineVjp(Select(found.inside, zero - slope, slope), me.centre_x, me.centre_y, v, gradient);
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        sums[k * 2] = gradient[k].x.v;
        sums[k * 2 + 1] = gradient[k].y.v;
      }
    }
    SumLanes<kSums>(sums, lane);
    if (sum_index >= 0) partial[warp][i][sum_index] = sums[0];
    warp_hits |= 1u << i;
  };
  const auto add_warps = [&](uint32_t start, int n) {
    if (lane == 0) hits[warp] = warp_hits;
    warp_hits = 0;
    __syncthreads();
    for (int k = thread; k < n * kSums; k += threads) {
      const int i = k / kSums, j = k % kSums;
      float sum = 0;
      for (int w = 0; w < threads / kWarp; ++w) sum += (hits[w] >> i & 1) != 0 ? partial[w][i][j] : 0.0f;
      const int64_t slot = int64_t{a.lists.slots[start + static_cast<uint32_t>(i)]} * a.Parts() + me.part;
      slots[slot * kSums + j] = sum;
    }
  };
  ForEachFace(a, me, me.range.end, batch, see, add_warps);
}

// The gradient of each face from its slots, in the order of its tiles.
__global__ void ReduceFaces(MeshArguments a, const float* slots, float* v_face_verts) {
  const int64_t row = ThreadIndex(), size = a.batch.size;
  if (row >= a.chunk.count * size) return;
  const int64_t image = row / size, face = row % size;
  const MeshView mesh = a.batch.View(a.batch.axes.Split(a.chunk.first + image));
  if (face >= mesh.count) return;
  const int64_t begin = row > 0 ? a.lists.slot_ends[row - 1] : 0, end = a.lists.slot_ends[row];
  float sums[kSums] = {};
  for (int64_t slot = begin * a.Parts(); slot < end * a.Parts(); ++slot) {
#pragma unroll
    for (int k = 0; k < kSums; ++k) sums[k] += slots[slot * kSums + k];
  }
  float* const to = v_face_verts + ((a.chunk.first + image) * a.batch.given + mesh.first + face) * 9;
#pragma unroll
  for (int k = 0; k < kSums; ++k) to[k / 2 * 3 + k % 2] = sums[k];
}

}  // namespace

void RasterizeSilhouettes(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                          float* transmittances) {
  ForEachMeshChunk(device, grid, rule, meshes, [&](const MeshArguments& a) {
    Launch(CoverPixels, a.Blocks(), a.Threads(), device.stream(), a, transmittances);
  });
}

void DifferentiateSilhouettes(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                              const Batched<float>& transmittances, const Batched<float>& v_transmittances,
                              float* v_face_verts) {
  device.Fill(v_face_verts, 0, meshes.images * meshes.given * 9);
  ForEachMeshChunk(device, grid, rule, meshes, [&](const MeshArguments& a) {
    auto* slots = device.Take<float>(a.lists.size * a.Parts() * kSums);
    Launch(DifferentiateTiles, a.Blocks(), a.Threads(), device.stream(), a, transmittances, v_transmittances, slots);
    LaunchEach(ReduceFaces, a.chunk.count * a.batch.size, device.stream(), a, slots, v_face_verts);
  });
}

}  // namespace jaxsplat::cuda
