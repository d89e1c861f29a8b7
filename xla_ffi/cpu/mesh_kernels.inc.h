// The faces of one tile. Included by one source file per instruction set.
//
// Face by face, in the order of their indices, each block of pixels keeps the nearest so far; coordinates and distances
// are computed once at the end, for those that are left.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/simd.h"
#include "cpu/mesh_kernels.h"
#include "cpu/mesh_pixels.inc.h"
#include "cpu/tile_batch.h"
#include "math/triangle.h"
#include "math/triangle_vjp.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// The nearest faces of the pixels of one group, [K, lanes]: depth, and 2 face + (whether it covers the centre) as bits.
struct Slots {
  float* depths;
  float* faces;

  // Of faces that come in the order of their indices, the earlier stays in front where depths are equal.
  JAXSPLAT_INLINE void Insert(Mask hit, Vec depth, Vec face, int64_t k_slots) const {
    hit = hit & (depth < Vec::Load(depths + (k_slots - 1) * kLanes));
    if (!Any(hit)) return;
    depth = Select(hit, depth, Vec(std::numeric_limits<float>::infinity()));
    Mask nearer = depth < depth;
    for (int64_t k = 0; k < k_slots; ++k) {
      const Vec old_depth = Vec::Load(depths + k * kLanes), old_face = Vec::Load(faces + k * kLanes);
      // From where the face goes in, all others move on, those of equal depth too.
      nearer = nearer | (depth < old_depth);
      Select(nearer, depth, old_depth).Store(depths + k * kLanes);
      Select(nearer, face, old_face).Store(faces + k * kLanes);
      depth = Select(nearer, old_depth, depth);
      face = Select(nearer, old_face, face);
    }
  }
};

// Takes one face into all groups that see it.
template <bool kDistance>
void TakeFace(const MeshTileJob& job, const TilePixels& pixels, int64_t face, int64_t neighbor) {
  const int64_t k_slots = job.rule.faces_per_pixel, floats = 2 * k_slots * kLanes;
  const auto id = static_cast<int32_t>(face * 2);
  ForEachHit<kDistance>(job, pixels, face, neighbor,
                        [&](int64_t group, const Vec&, const Vec&, const TriangleHit& found) {
                          float* const at = job.scratch + group * floats;
                          const Vec bits = Select(found.inside, VecOfBits(id + 1), VecOfBits(id));
                          Slots{at, at + floats / 2}.Insert(found.hit, found.depth, bits, k_slots);
                        });
}

// The corners of one face for each lane, of which the first value's index is given.
JAXSPLAT_INLINE void LoadCorners(const float* face_verts, const int32_t* index, CornerVec (&v)[3]) {
  Vec a[8];
  GatherFour(face_verts, index, a);
  GatherFour(face_verts + 4, index, a + 4);
  v[0] = {a[0], a[1], a[2]};
  v[1] = {a[3], a[4], a[5]};
  v[2] = {a[6], a[7], Vec::Gather(face_verts + 8, index)};
}

struct alignas(64) SlotValues {
  float bary[3][kLanes], distance[kLanes];
};

// What faces, another for each lane, say about pixels; -1, and the distance 1, where there is none.
void EvaluateSlots(const MeshTileJob& job, const Mask& there, const int32_t* corner_index, const Vec& px, const Vec& py,
                   SlotValues* out) {
  CornerVec v[3];
  LoadCorners(job.mesh.face_verts, corner_index, v);
  const TriangleValues values(job.rule, v, px, py);
  for (int i = 0; i < 3; ++i) Select(there, values.bary[i], Vec(-1.0f)).Store(out->bary[i]);
  Select(there, values.distance, Vec(1.0f)).Store(out->distance);
}

// Writes the slots of one group, as far as any of its pixels fills them.
void WriteGroup(const MeshTileJob& job, const TilePixels& pixels, int block_x, int block_y, int group,
                const Slots& slots, const FragmentArrays& out) {
  const int64_t k_slots = job.rule.faces_per_pixel;
  const Vec x = pixels.X(block_x, group), y = pixels.Y(block_y, group);
  const Vec empty(std::numeric_limits<float>::infinity());
  for (int64_t k = 0; k < k_slots; ++k) {
    const Vec depth = Vec::Load(slots.depths + k * kLanes);
    const Mask there = depth < empty;
    if (!Any(there)) return;
    alignas(64) int32_t faces[kLanes], corner_index[kLanes];
    alignas(64) float depths[kLanes];
    std::memcpy(faces, slots.faces + k * kLanes, sizeof(faces));
    for (int lane = 0; lane < kLanes; ++lane) corner_index[lane] = std::max(faces[lane] >> 1, 0) * 9;
    Select(there, depth, Vec(-1.0f)).Store(depths);
    SlotValues values;
    EvaluateSlots(job, there, corner_index, x, y, &values);
    pixels.ForEachPixel(block_x, block_y, group, [&](int lane, int64_t pixel) {
      const int64_t at = pixel * k_slots + k;
      out.faces[at] = faces[lane] < 0 ? -1 : (faces[lane] >> 1) + static_cast<int32_t>(job.mesh.first);
      out.depths[at] = depths[lane];
      for (int i = 0; i < 3; ++i) out.bary[at * 3 + i] = values.bary[i][lane];
      // The lowest bit is set inside the face, and where there is none.
      out.dists[at] = faces[lane] & 1 ? -values.distance[lane] : values.distance[lane];
    });
  }
}

void Fragments(const MeshTileJob& job, const FragmentArrays& out) {
  const TilePixels pixels(job);
  const int64_t k_slots = job.rule.faces_per_pixel, floats = 2 * k_slots * kLanes;
  const int groups = pixels.side * pixels.side * kGroups;
  for (int g = 0; g < groups; ++g) {
    float* const at = job.scratch + g * floats;
    std::fill_n(at, floats / 2, std::numeric_limits<float>::infinity());
    // All bits set: -1.
    std::memset(at + floats / 2, 0xff, sizeof(float) * static_cast<size_t>(floats / 2));
  }
  for (int64_t i = 0; i < job.size; ++i) {
    const int64_t face = job.entries[i].id;
    const int64_t neighbor = NeighborOf(job, face);
    if (job.mesh.blur_radius > 0 || neighbor >= 0) {
      TakeFace<true>(job, pixels, face, neighbor);
    } else {
      TakeFace<false>(job, pixels, face, -1);
    }
  }
  for (int g = 0; g < groups; ++g) {
    float* const at = job.scratch + g * floats;
    const int block = g / kGroups;
    WriteGroup(job, pixels, block % pixels.side, block / pixels.side, g % kGroups, {at, at + floats / 2}, out);
  }
}

// As many slots as a vector has lanes; those without a face have a negative one.
struct alignas(64) SlotBatch {
  int32_t faces[kLanes];
  float x[kLanes], y[kLanes], v_depth[kLanes], v_bary[3][kLanes], v_distance[kLanes];

  // Takes slot `at`, of a pixel with this centre.
  JAXSPLAT_INLINE void Take(const SlotsJob& job, int lane, int64_t at, float pixel_x, float pixel_y) {
    faces[lane] = job.faces[at];
    x[lane] = pixel_x;
    y[lane] = pixel_y;
    v_depth[lane] = job.v_depths[at];
    for (int i = 0; i < 3; ++i) v_bary[i][lane] = job.v_bary[at * 3 + i];
    // What comes in is of the signed distance.
    v_distance[lane] = std::copysign(1.0f, job.dists[at]) * job.v_dists[at];
  }
};

// Writes the gradients of the slots with a face, and the faces. Returns how many.
int DifferentiateBatch(const SlotsJob& job, const SlotBatch& batch, int32_t* faces, float* out) {
  alignas(64) int32_t corner_index[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) corner_index[lane] = std::max(batch.faces[lane], 0) * 9;
  CornerVec v[3], gradient[3];
  LoadCorners(job.face_verts, corner_index, v);
  const Vec v_bary[3] = {Vec::Load(batch.v_bary[0]), Vec::Load(batch.v_bary[1]), Vec::Load(batch.v_bary[2])};
  TriangleVjp(job.rule, v, Vec::Load(batch.x), Vec::Load(batch.y), Vec::Load(batch.v_depth), v_bary,
              Vec::Load(batch.v_distance), gradient);
  Vec rows[8] = {gradient[0].x, gradient[0].y, gradient[0].z, gradient[1].x,
                 gradient[1].y, gradient[1].z, gradient[2].x, gradient[2].y};
  alignas(64) float last[kLanes], nowhere[12];
  gradient[2].z.Store(last);
  float *to[kLanes], *after[kLanes];
  int count = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const bool there = batch.faces[lane] >= 0;
    to[lane] = there ? out + count * 9 : nowhere;
    after[lane] = to[lane] + 4;
    to[lane][8] = last[lane];
    if (there) faces[count++] = batch.faces[lane];
  }
  ScatterFour(rows, to);
  ScatterFour(rows + 4, after);
  return count;
}

// Which of a vector's slots have a face: as floats, numbers from zero on are no less than zero, -1 is no number.
JAXSPLAT_INLINE uint32_t FilledSlots(const int32_t* faces) {
  float bits[kLanes];
  std::memcpy(bits, faces, sizeof(bits));
  return Bits(Vec(0.0f) <= Vec::Load(bits));
}

int64_t DifferentiateSlots(const SlotsJob& job, const float* slot_xs, int64_t begin_row, int64_t end_row,
                           int32_t* faces, float* gradients) {
  const int64_t row_slots = job.width * job.rule.faces_per_pixel;
  SlotBatch waiting{};
  int size = 0;
  int64_t count = 0;
  const auto differentiate = [&](const SlotBatch& batch) {
    count += DifferentiateBatch(job, batch, faces + count, gradients + count * 9);
  };
  const auto flush = [&] {
    if (size == 0) return;
    std::fill(waiting.faces + size, waiting.faces + kLanes, -1);
    differentiate(waiting);
    size = 0;
  };
  for (int64_t row = begin_row; row < end_row; ++row) {
    const float y = job.ys[row % job.height];
    for (int64_t begin = 0; begin < row_slots; begin += kLanes) {
      const int64_t at = row * row_slots + begin;
      const int lanes = static_cast<int>(std::min<int64_t>(kLanes, row_slots - begin));
      const uint32_t filled = lanes == kLanes ? FilledSlots(job.faces + at) : (uint32_t{1} << lanes) - 1;
      // Well-filled slots are taken as they lie, others wait for more: all stay in order.
      if (lanes == kLanes && __builtin_popcount(filled) > kLanes / 2) {
        flush();
        SlotBatch batch;
        for (int lane = 0; lane < kLanes; ++lane) batch.Take(job, lane, at + lane, slot_xs[begin + lane], y);
        differentiate(batch);
        continue;
      }
      for (uint32_t rest = filled; rest != 0; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        if (job.faces[at + lane] < 0) continue;
        waiting.Take(job, size, at + lane, slot_xs[begin + lane], y);
        if (++size == kLanes) flush();
      }
    }
  }
  flush();
  return count;
}

}  // namespace

}  // namespace jaxsplat::JAXSPLAT_ISA
