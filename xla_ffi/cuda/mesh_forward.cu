// The nearest faces of each pixel: a block a tile, a thread a pixel; faces come in batches through shared memory, by
// index.
#include <cmath>

#include "cuda/tile_faces.h"
#include "math/triangle_vjp.h"

namespace jaxsplat::cuda {
namespace {

constexpr int kBatchFaces = 64;

// The nearest faces of one pixel, of those that come after `behind`: depth, and 2 face + (whether it covers the
// centre). They stay in registers, so every index is known to the compiler.
template <int kSlots>
struct Nearest {
  float depths[kSlots];
  int32_t faces[kSlots];
  float behind_depth = -INFINITY;
  int32_t behind_face = -1;

  __device__ void Clear() {
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      depths[k] = INFINITY;
      faces[k] = -1;
    }
  }
  __device__ bool Full() const { return depths[kSlots - 1] < INFINITY; }

  // Of faces that come in the order of their indices, the earlier stays in front where depths are equal.
  __device__ void Insert(float depth, int32_t face) {
    if (!(depth < depths[kSlots - 1])) return;
    if (depth < behind_depth || (depth == behind_depth && face <= behind_face)) return;
    bool nearer = false;
#pragma unroll
    for (int k = 0; k < kSlots; ++k) {
      // From where the face goes in, all others move on, those of equal depth too.
      nearer = nearer || depth < depths[k];
      const float old_depth = depths[k];
      const int32_t old_face = faces[k];
      depths[k] = nearer ? depth : old_depth;
      faces[k] = nearer ? face : old_face;
      depth = nearer ? old_depth : depth;
      face = nearer ? old_face : face;
    }
  }
  __device__ void GoOn() {
    behind_depth = depths[kSlots - 1];
    behind_face = faces[kSlots - 1];
  }
};

// Slot `at` of all pixels.
__device__ void WriteSlot(const MeshRule& rule, const MeshPixel& me, float depth, int32_t face, int64_t at,
                          const FragmentArrays& out) {
  if (face < 0) {
    out.faces[at] = -1;
    out.depths[at] = out.dists[at] = -1.0f;
    for (int k = 0; k < 3; ++k) out.bary[at * 3 + k] = -1.0f;
    return;
  }
  const int32_t id = face >> 1;
  const float* const c = me.mesh.face_verts + int64_t{id} * 9;
  const CornerVec v[3] = {
      {Vec(c[0]), Vec(c[1]), Vec(c[2])}, {Vec(c[3]), Vec(c[4]), Vec(c[5])}, {Vec(c[6]), Vec(c[7]), Vec(c[8])}};
  const TriangleValues values(rule, v, me.centre_x, me.centre_y);
  out.faces[at] = id + static_cast<int32_t>(me.mesh.first);
  out.depths[at] = depth;
  for (int k = 0; k < 3; ++k) out.bary[at * 3 + k] = values.bary[k].v;
  out.dists[at] = (face & 1) != 0 ? -values.distance.v : values.distance.v;
}

// Else the compiler spills for the sake of one more.
constexpr int LeastBlocks(int slots) { return slots < 8 ? 3 : 2; }

// Finds kSlots faces at a time, until the pixels have all that they see.
template <int kSlots, bool kDistance>
__global__ void __launch_bounds__(kThreads, LeastBlocks(kSlots)) FindNearest(MeshArguments a, FragmentArrays out) {
  __shared__ FaceBatch<kBatchFaces, kDistance> batch;
  const MeshPixel me(a);
  const int64_t all_slots = a.rule.faces_per_pixel;
  const int64_t first_slot = ((a.chunk.first + me.image) * a.grid.width * a.grid.height + me.pixel) * all_slots;
  uint32_t end = me.range.end;
  Nearest<kSlots> nearest;
  for (int64_t first = 0; first < all_slots; first += kSlots) {
    nearest.Clear();
    ForEachFace(
        a, me, end, batch,
        [&](int i) {
          const TriangleHit found = batch.At(i, a, me);
          if (found.hit.v) nearest.Insert(found.depth.v, batch.faces[i].id * 2 + (found.inside.v ? 1 : 0));
        },
        [](uint32_t, int) {});
    if (me.inside) {
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        if (first + k >= all_slots) continue;
        WriteSlot(a.rule, me, nearest.depths[k], nearest.faces[k], first_slot + first + k, out);
      }
    }
    // Where no pixel is full there is nothing left.
    if (__syncthreads_count(nearest.Full()) == 0) end = me.range.begin;
    nearest.GoOn();
  }
}

template <int kSlots>
void Find(Device& device, const MeshArguments& a, const FragmentArrays& out) {
  Launch(a.distances ? FindNearest<kSlots, true> : FindNearest<kSlots, false>, a.Blocks(), a.Threads(), device.stream(),
         a, out);
}

}  // namespace

void RasterizeMeshes(Device& device, const ImageGrid& grid, const MeshRule& rule, const MeshBatch& meshes,
                     const FragmentArrays& out) {
  ForEachMeshChunk(device, grid, rule, meshes, [&](const MeshArguments& a) {
    const int64_t slots = rule.faces_per_pixel;
    return slots == 1   ? Find<1>(device, a, out)
           : slots == 2 ? Find<2>(device, a, out)
           : slots <= 4 ? Find<4>(device, a, out)
           : slots <= 8 ? Find<8>(device, a, out)
                        : Find<16>(device, a, out);
  });
}

}  // namespace jaxsplat::cuda
