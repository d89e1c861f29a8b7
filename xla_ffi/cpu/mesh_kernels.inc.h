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
#include "cpu/tile_batch.h"
#include "math/triangle.h"
#include "math/triangle_vjp.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

JAXSPLAT_INLINE Vec VecOfBits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return Vec(value);
}

// The pixels of a tile, as blocks of 4x4 and groups of a vector's lanes.
class TilePixels {
 public:
  explicit TilePixels(const MeshTileJob& job) : width_(job.grid.width), height_(job.grid.height) {
    const int64_t size = job.grid.tile_size;
    side = static_cast<int>(size / kBlockSide);
    column = job.tile % job.grid.tiles_x() * size;
    row = job.tile / job.grid.tiles_x() * size;
    for (int64_t i = 0; i < size; ++i) {
      xs_[i] = job.mesh.xs[std::min(column + i, width_ - 1)];
      ys_[i] = job.mesh.ys[std::min(row + i, height_ - 1)];
    }
    for (int b = 0; b < side; ++b) {
      for (int i = 0; i < kBlockPixels; ++i) {
        x_[b][i] = xs_[b * kBlockSide + i % kBlockSide];
        y_[b][i] = ys_[b * kBlockSide + i / kBlockSide];
      }
    }
  }

  int side;
  int64_t column, row;

  JAXSPLAT_INLINE Vec X(int block_x, int group) const { return Vec::Load(x_[block_x] + group * kLanes); }
  JAXSPLAT_INLINE Vec Y(int block_y, int group) const { return Vec::Load(y_[block_y] + group * kLanes); }

  // Calls f(lane, pixel) for the pixels of a group that lie in the image.
  template <class F>
  JAXSPLAT_INLINE void ForEachPixel(int block_x, int block_y, int group, const F& f) const {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int i = group * kLanes + lane;
      const int64_t x = column + block_x * kBlockSide + i % kBlockSide;
      const int64_t y = row + block_y * kBlockSide + i / kBlockSide;
      if (x < width_ && y < height_) f(lane, y * width_ + x);
    }
  }

 private:
  static constexpr int kMaxSide = kMaxTileSize / kBlockSide;
  int64_t width_, height_;
  float xs_[kMaxTileSize], ys_[kMaxTileSize];
  alignas(64) float x_[kMaxSide][kBlockPixels], y_[kMaxSide][kBlockPixels];
};

// Calls f(block_x, block_y) for the blocks of a tile that a face may touch.
template <class F>
JAXSPLAT_INLINE void ForEachBlock(const MeshTileJob& job, const TilePixels& pixels, int64_t face, const F& f) {
  const PixelBox& box = job.boxes[face];
  const int last = pixels.side - 1;
  const auto block = [&](int64_t pixel, int64_t first) {
    return static_cast<int>(std::clamp<int64_t>((pixel - first) >> 2, 0, last));
  };
  static_assert(kBlockSide == 4, "a shift by 2 divides by the side of a block");
  const int x0 = block(box.x0, pixels.column), x1 = block(box.x1, pixels.column);
  const int y0 = block(box.y0, pixels.row), y1 = block(box.y1, pixels.row);
  if (x1 - x0 < 2 || y1 == y0) {
    for (int y = y0; y <= y1; ++y) {
      for (int x = x0; x <= x1; ++x) f(x, y);
    }
    return;
  }
  float corners[3][2];
  const float* v = job.mesh.face_verts + face * 9;
  const PixelScale& scale = job.scale;
  for (int i = 0; i < 3; ++i) {
    corners[i][0] = static_cast<float>((v[i * 3] - scale.x0) * scale.inv_x - static_cast<double>(pixels.column));
    corners[i][1] = static_cast<float>((v[i * 3 + 1] - scale.y0) * scale.inv_y - static_cast<double>(pixels.row));
  }
  const float radius = std::sqrt(job.mesh.blur_radius);
  const float radius_x = radius * static_cast<float>(std::abs(scale.inv_x));
  const float radius_y = radius * static_cast<float>(std::abs(scale.inv_y));
  for (int y = y0; y <= y1; ++y) {
    const auto top = static_cast<float>(y * kBlockSide);
    const ColumnSpan span = SpanInRows(corners, top, top + (kBlockSide - 1), radius_x, radius_y);
    const float side = kBlockSide, end = static_cast<float>(pixels.side);
    const int from = std::max(x0, static_cast<int>(std::clamp(std::floor(span.x0 / side), 0.0f, end)));
    const int to = std::min(x1, static_cast<int>(std::clamp(std::floor(span.x1 / side), -1.0f, end)));
    for (int x = from; x <= to; ++x) f(x, y);
  }
}

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

// Calls f(group, hit) for all groups of a tile that see a face; `group` counts blocks and groups within them.
template <bool kDistance, class F>
JAXSPLAT_INLINE void ForEachHit(const MeshTileJob& job, const TilePixels& pixels, int64_t face, int64_t neighbor,
                                const F& f) {
  const float* const corners = job.mesh.face_verts + face * 9;
  // Only read where there is a neighbour.
  const float* const half_corners = job.mesh.face_verts + (neighbor < 0 ? face : neighbor) * 9;
  const TriangleSetup triangle(corners), other(half_corners);
  ForEachBlock(job, pixels, face, [&](int block_x, int block_y) {
    for (int group = 0; group < kGroups; ++group) {
      const Vec x = pixels.X(block_x, group), y = pixels.Y(block_y, group);
      TriangleHit found = Hit<kDistance>(triangle, corners, job.rule, job.mesh, x, y);
      if (!Any(found.hit)) continue;
      if (kDistance && neighbor >= 0) {
        const TriangleHit half = Hit<true>(other, half_corners, job.rule, job.mesh, x, y);
        found.hit = found.hit & SeenBeside(found, half, neighbor < face);
      }
      f((block_y * pixels.side + block_x) * kGroups + group, x, y, found);
    }
  });
}

// The other half of a face if it may be seen, or -1.
int64_t NeighborOf(const MeshTileJob& job, int64_t face) {
  if (job.mesh.neighbors == nullptr) return -1;
  const int64_t neighbor = job.mesh.neighbors[face] - job.mesh.first;
  return neighbor < 0 || neighbor >= job.mesh.count || job.boxes[neighbor].x0 > job.boxes[neighbor].x1 ? -1 : neighbor;
}

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

typedef float Four __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));

JAXSPLAT_INLINE void Transpose(Four* a) {
  const Four low01 = __builtin_shuffle(a[0], a[1], Ints{0, 4, 1, 5}),
             high01 = __builtin_shuffle(a[0], a[1], Ints{2, 6, 3, 7});
  const Four low23 = __builtin_shuffle(a[2], a[3], Ints{0, 4, 1, 5}),
             high23 = __builtin_shuffle(a[2], a[3], Ints{2, 6, 3, 7});
  a[0] = __builtin_shuffle(low01, low23, Ints{0, 1, 4, 5});
  a[1] = __builtin_shuffle(low01, low23, Ints{2, 3, 6, 7});
  a[2] = __builtin_shuffle(high01, high23, Ints{0, 1, 4, 5});
  a[3] = __builtin_shuffle(high01, high23, Ints{2, 3, 6, 7});
}

// The corners of one face for each lane, of which the first value's index is given. By fours, which takes half the time
// of gathering.
JAXSPLAT_INLINE void LoadCorners(const float* face_verts, const int32_t* index, CornerVec (&v)[3]) {
  alignas(64) float values[9][kLanes];
  for (int lane = 0; lane < kLanes; lane += 4) {
    Four part[2][4];
    for (int i = 0; i < 4; ++i) {
      const float* const from = face_verts + index[lane + i];
      std::memcpy(&part[0][i], from, sizeof(Four));
      std::memcpy(&part[1][i], from + 4, sizeof(Four));
      values[8][lane + i] = from[8];
    }
    for (int half = 0; half < 2; ++half) {
      Transpose(part[half]);
      for (int i = 0; i < 4; ++i) std::memcpy(&values[half * 4 + i][lane], &part[half][i], sizeof(Four));
    }
  }
  for (int i = 0; i < 3; ++i) {
    v[i] = {Vec::Load(values[i * 3]), Vec::Load(values[i * 3 + 1]), Vec::Load(values[i * 3 + 2])};
  }
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

// Sums -log(1 - coverage) over all faces, in no more memory than the picture.
void Silhouettes(const MeshTileJob& job, float sigma, float* transmittances) {
  const TilePixels pixels(job);
  const int groups = pixels.side * pixels.side * kGroups;
  std::fill_n(job.scratch, groups * kLanes, 0.0f);
  const Vec scale(-1.0f / sigma);
  for (int64_t i = 0; i < job.size; ++i) {
    const int64_t face = job.entries[i].id;
    ForEachHit<true>(job, pixels, face, NeighborOf(job, face),
                     [&](int64_t group, const Vec&, const Vec&, const TriangleHit& found) {
                       float* const at = job.scratch + group * kLanes;
                       const Coverage coverage(found.SignedDistance() * scale);
                       (Vec::Load(at) + Keep(found.hit, coverage.softplus)).Store(at);
                     });
  }
  for (int g = 0; g < groups; ++g) {
    alignas(64) float values[kLanes];
    ExpOfMinus(Vec::Load(job.scratch + g * kLanes)).Store(values);
    const int block = g / kGroups;
    pixels.ForEachPixel(block % pixels.side, block / pixels.side, g % kGroups,
                        [&](int lane, int64_t pixel) { transmittances[pixel] = values[lane]; });
  }
}

// For each entry of the tile its slot of the gradient: x and y of the three corners, and two zeros.
void SilhouettesVjp(const MeshTileJob& job, float sigma, const float* transmittances, const float* v_transmittances,
                    float* slots) {
  const TilePixels pixels(job);
  const int groups = pixels.side * pixels.side * kGroups;
  // By pixel: the transmittance times its cotangent.
  std::fill_n(job.scratch, groups * kLanes, 0.0f);
  for (int g = 0; g < groups; ++g) {
    const int block = g / kGroups;
    pixels.ForEachPixel(block % pixels.side, block / pixels.side, g % kGroups, [&](int lane, int64_t pixel) {
      job.scratch[g * kLanes + lane] = transmittances[pixel] * v_transmittances[pixel];
    });
  }
  const Vec scale(-1.0f / sigma), zero(0.0f);
  for (int64_t i = 0; i < job.size; ++i) {
    const int64_t face = job.entries[i].id;
    const float* p = job.mesh.face_verts + face * 9;
    const CornerVec v[3] = {
        {Vec(p[0]), Vec(p[1]), Vec(p[2])}, {Vec(p[3]), Vec(p[4]), Vec(p[5])}, {Vec(p[6]), Vec(p[7]), Vec(p[8])}};
    CornerVec sums[3] = {{zero, zero, zero}, {zero, zero, zero}, {zero, zero, zero}};
    ForEachHit<true>(job, pixels, face, NeighborOf(job, face),
                     [&](int64_t group, const Vec& x, const Vec& y, const TriangleHit& found) {
                       const Coverage coverage(found.SignedDistance() * scale);
                       // The transmittance falls by coverage / sigma as the face comes nearer by 1.
                       const Vec slope = Vec::Load(job.scratch + group * kLanes) * coverage.sigmoid * (zero - scale);
                       const Vec g = Keep(found.hit, Select(found.inside, zero - slope, slope));
                       OutlineVjp(g, x, y, v, sums);
                     });
    float* const slot = slots + int64_t{job.entries[i].slot} * kSilhouetteSlot;
    SumFour(sums[0].x, sums[0].y, sums[1].x, sums[1].y, slot);
    SumFour(sums[2].x, sums[2].y, zero, zero, slot + 4);
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
  alignas(64) float values[9][kLanes];
  for (int i = 0; i < 3; ++i) {
    gradient[i].x.Store(values[i * 3]);
    gradient[i].y.Store(values[i * 3 + 1]);
    gradient[i].z.Store(values[i * 3 + 2]);
  }
  int count = 0;
  for (int lane = 0; lane < kLanes; lane += 4) {
    Four part[2][4];
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) std::memcpy(&part[half][i], &values[half * 4 + i][lane], sizeof(Four));
      Transpose(part[half]);
    }
    for (int i = 0; i < 4; ++i) {
      if (batch.faces[lane + i] < 0) continue;
      float* const to = out + count * 9;
      std::memcpy(to, &part[0][i], sizeof(Four));
      std::memcpy(to + 4, &part[1][i], sizeof(Four));
      to[8] = values[8][lane + i];
      faces[count++] = batch.faces[lane + i];
    }
  }
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
