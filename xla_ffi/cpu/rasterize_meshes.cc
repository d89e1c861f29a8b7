#include "cpu/rasterize_meshes.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/mesh_kernels.h"
#include "cpu/scratch.h"
#include "cpu/tile_lists.h"
#include "cpu/tile_runs.h"
#include "math/face_extents.h"

namespace jaxsplat {
namespace {

using namespace JAXSPLAT_ISA;

constexpr int64_t kGrain = 4096;
constexpr int64_t kMostChunks = 64;

// The faces of each tile, by index.
struct PreparedMesh {
  PixelScale scale;
  const PixelBox* boxes;  // by face
  TileLists lists;
};

PreparedMesh Prepare(Pool* pool, Scratch& scratch, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh) {
  CheckFaces(mesh.count);
  const PixelScale scale = ScaleOf(grid, mesh.xs, mesh.ys);
  const double radius = std::sqrt(static_cast<double>(mesh.blur_radius));
  auto* const boxes = scratch.Take<PixelBox>(mesh.count);
  TileRuns runs(scratch, grid, Chunks(mesh.count, kGrain, kMostChunks));
  ParallelFor(pool, runs.chunks.count, [&](int64_t chunk) {
    RunWriter writer(runs, chunk);
    for (int64_t i = runs.chunks.begin(chunk); i < runs.chunks.end(chunk); ++i) {
      const float* const corners = mesh.face_verts + i * 9;
      boxes[i] = BoxOf(grid, rule.cull_backfaces, scale, radius, corners);
      if (boxes[i].x0 > boxes[i].x1) continue;
      const FaceTiles tiles(grid, scale, radius, corners, boxes[i]);
      writer.Write(i, tiles.rows.y0, tiles.rows.y1, [&](int32_t y) { return tiles.Span(y); });
    }
  });
  const TileLists lists = BucketByTile(pool, scratch, scratch, runs, nullptr);
  return {scale, boxes, lists};
}

// Tiles that a thread takes at a time.
constexpr int64_t kRun = 4;

// Writes past the cache, which spares reading what is there.
template <class T>
void Stream(T* to, int64_t n, T value) {
#if defined(__SSE2__)
  static_assert(sizeof(T) == 4);
  T* const end = to + n;
  for (; to < end && reinterpret_cast<uintptr_t>(to) % 16 != 0; ++to) *to = value;
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const __m128i four = _mm_set1_epi32(bits);
  for (; to + 4 <= end; to += 4) _mm_stream_si128(reinterpret_cast<__m128i*>(to), four);
  for (; to < end; ++to) *to = value;
#else
  std::fill_n(to, n, value);
#endif
}

// fill(to, n, value) is std::fill_n, or Stream.
template <class Fill>
void ClearTile(const ImageGrid& grid, int64_t tile, int64_t k_slots, const FragmentArrays& out, const Fill& fill) {
  const int64_t x0 = tile % grid.tiles_x() * grid.tile_size, y0 = tile / grid.tiles_x() * grid.tile_size;
  const int64_t x1 = std::min(grid.width, x0 + grid.tile_size), y1 = std::min(grid.height, y0 + grid.tile_size);
  for (int64_t y = y0; y < y1; ++y) {
    const int64_t begin = (y * grid.width + x0) * k_slots, n = (x1 - x0) * k_slots;
    fill(out.faces + begin, n, -1);
    fill(out.depths + begin, n, -1.0f);
    fill(out.bary + begin * 3, n * 3, -1.0f);
    fill(out.dists + begin, n, -1.0f);
  }
}

// Calls f(job) for every tile, and empty(tile) instead where no face may touch it.
template <class F, class Empty>
void ForEachTile(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh,
                 const PreparedMesh& prepared, const Empty& empty, const F& f) {
  const int64_t* const begin = prepared.lists.tile_begin;
  ParallelFor(pool, (grid.tiles() + kRun - 1) / kRun, [&](int64_t run) {
    Scratch own;
    auto* const scratch = own.Take<float>(MeshScratchFloats(grid, rule.faces_per_pixel));
    for (int64_t t = run * kRun; t < std::min(grid.tiles(), (run + 1) * kRun); ++t) {
      if (begin[t] == begin[t + 1]) {
        empty(t);
      } else {
        f(MeshTileJob{grid, rule, mesh, prepared.scale, prepared.boxes, t, prepared.lists.list + begin[t],
                      begin[t + 1] - begin[t], scratch});
      }
    }
  });
}

}  // namespace

void RasterizeMeshes(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh,
                     const FragmentArrays& out) {
  constexpr int64_t kCacheSlots = 1 << 17;  // 24 bytes each
  const int64_t k_slots = rule.faces_per_pixel;
  const auto fill = [](auto* to, int64_t n, auto value) { std::fill_n(to, n, value); };
  const auto stream = [](auto* to, int64_t n, auto value) { Stream(to, n, value); };
  const bool fits = grid.width * grid.height * k_slots <= kCacheSlots;
  Scratch scratch;
  ForEachTile(
      pool, grid, rule, mesh, Prepare(pool, scratch, grid, rule, mesh),
      [&](int64_t tile) {
        fits ? ClearTile(grid, tile, k_slots, out, fill) : ClearTile(grid, tile, k_slots, out, stream);
      },
      [&](const MeshTileJob& job) {
        ClearTile(grid, job.tile, k_slots, out, fill);
        BestKernels().fragments(job, out);
      });
}

void RasterizeSilhouettes(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh, float sigma,
                          float* transmittances) {
  Scratch scratch;
  std::fill_n(transmittances, grid.width * grid.height, 1.0f);
  ForEachTile(
      pool, grid, rule, mesh, Prepare(pool, scratch, grid, rule, mesh), [](int64_t) {},
      [&](const MeshTileJob& job) { BestKernels().silhouettes(job, sigma, transmittances); });
}

void DifferentiateSilhouettes(Pool* pool, const ImageGrid& grid, const MeshRule& rule, const MeshView& mesh,
                              float sigma, const float* transmittances, const float* v_transmittances,
                              float* v_face_verts) {
  Scratch scratch;
  const PreparedMesh prepared = Prepare(pool, scratch, grid, rule, mesh);
  auto* const slots = scratch.Take<float>(prepared.lists.entries * kSilhouetteSlot);
  ForEachTile(
      pool, grid, rule, mesh, prepared, [](int64_t) {},
      [&](const MeshTileJob& job) {
        BestKernels().silhouettes_vjp(job, sigma, transmittances, v_transmittances, slots);
      });
  const Chunks chunks(mesh.count, kGrain, kMostChunks);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    for (int64_t face = chunks.begin(chunk); face < chunks.end(chunk); ++face) {
      float sums[6] = {};
      for (int64_t slot = prepared.lists.slot_begin[face]; slot < prepared.lists.slot_begin[face + 1]; ++slot) {
        for (int k = 0; k < 6; ++k) sums[k] += slots[slot * kSilhouetteSlot + k];
      }
      for (int k = 0; k < 3; ++k) {
        v_face_verts[face * 9 + k * 3] = sums[k * 2];
        v_face_verts[face * 9 + k * 3 + 1] = sums[k * 2 + 1];
        v_face_verts[face * 9 + k * 3 + 2] = 0.0f;
      }
    }
  });
}

// Adds nine floats, by fours: the compiler cannot know that the two do not overlap.
static void AddNine(const float* a, float* sum) {
  typedef float Four __attribute__((vector_size(16)));
  for (int k = 0; k < 8; k += 4) {
    Four x, y;
    std::memcpy(&x, a + k, sizeof(x));
    std::memcpy(&y, sum + k, sizeof(y));
    y += x;
    std::memcpy(sum + k, &y, sizeof(y));
  }
  sum[8] += a[8];
}

void DifferentiateMeshes(Pool* pool, const SlotsJob& job, float* v_face_verts) {
  CheckFaces(job.face_count);
  std::fill_n(v_face_verts, job.face_count * 9, 0.0f);
  // Bands of rows, so that what is written on the way stays in the cache.
  constexpr int64_t kBandSlots = 1 << 18, kChunksOfBand = 16;
  const int64_t row_slots = job.width * job.rule.faces_per_pixel;
  const int64_t band_rows = std::clamp<int64_t>(kBandSlots / row_slots, 1, std::max<int64_t>(job.rows, 1));
  Scratch scratch;
  auto* const faces = scratch.Take<int32_t>(band_rows * row_slots);
  auto* const gradients = scratch.Take<float>(band_rows * row_slots * 9);
  // The horizontal centre of each slot's pixel.
  auto* const slot_xs = scratch.Take<float>(row_slots);
  for (int64_t i = 0; i < row_slots; ++i) slot_xs[i] = job.xs[i / job.rule.faces_per_pixel];
  int64_t counts[kChunksOfBand];
  // Each part sums its own range of faces. The ranges leave no trace in the result.
  const int64_t parts = pool != nullptr ? std::min<int64_t>(pool->NumThreads(), 16) : 1;
  for (int64_t first = 0; first < job.rows; first += band_rows) {
    const int64_t rows = std::min(band_rows, job.rows - first);
    const Chunks chunks(rows, std::max<int64_t>(kGrain / row_slots, 1), kChunksOfBand);
    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
      const int64_t at = chunks.begin(chunk) * row_slots;
      counts[chunk] = BestKernels().differentiate(job, slot_xs, first + chunks.begin(chunk), first + chunks.end(chunk),
                                                  faces + at, gradients + at * 9);
    });
    ParallelFor(pool, parts, [&](int64_t part) {
      const int64_t low = job.face_count * part / parts, high = job.face_count * (part + 1) / parts;
      for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
        const int64_t begin = chunks.begin(chunk) * row_slots;
        for (int64_t i = begin; i < begin + counts[chunk]; ++i) {
          if (faces[i] < low || faces[i] >= high) continue;
          AddNine(gradients + i * 9, v_face_verts + int64_t{faces[i]} * 9);
        }
      }
    });
  }
}

}  // namespace jaxsplat
