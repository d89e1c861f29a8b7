#include <string>

#include "cuda/device_sort.h"
#include "cuda/launch.h"
#include "cuda/tile_entries.h"
#include "cuda/tile_lists.h"
#include "math/tile_extents.h"

namespace jaxsplat::cuda {
namespace {

using namespace JAXSPLAT_ISA;

// The smallest alpha that counts.
struct AlphaMin {
  float value, inverse;
  explicit AlphaMin(double alpha_min)
      : value(static_cast<float>(alpha_min)), inverse(static_cast<float>(1 / alpha_min)) {}
};

// What the kernels that find extents take.
struct Extents {
  ImageGrid grid;
  SplatBatch batch;
  Chunk chunk;
  bool exact;
  Gaussian2d* splats;
  GaussianWorld* world;    // along rays
  const int64_t* anchors;  // [images]

  // Calls f(y, tiles of row y) for the rows of tiles that a splat may touch.
  template <class F>
  __device__ void ForEachSpan(int64_t row, const F& f) const {
    if (exact) {
      const Gaussian2d& g = splats[row];
      const TilesAlong columns(grid.tile_size, grid.width, grid.tiles_x());
      const TilesAlong all_rows(grid.tile_size, grid.height, grid.tiles_y());
      const TileRows rows = RowsOf(g, all_rows);
      for (int32_t y = rows.y0; y <= rows.y1; ++y) f(y, SpanOf(g, all_rows, columns, y));
      return;
    }
    const ImageIndex image = batch.axes.Split(chunk.first + row / batch.size);
    const float* mean = batch.means.At(image) + row % batch.size * 2;
    const int32_t* radii = batch.radii.At(image) + row % batch.size * 2;
    const TileSpan rows = BoxSpan(mean[1], radii[1], grid.height, grid.tiles_y(), grid.tile_size);
    const TileSpan columns = BoxSpan(mean[0], radii[0], grid.width, grid.tiles_x(), grid.tile_size);
    for (int32_t y = rows.x0; y <= rows.x1; ++y) f(y, columns);
  }
};

// Where the first ray of each image that sees anything starts: the pixel. A block an image.
__global__ void FindAnchors(SplatBatch batch, Chunk chunk, int64_t pixels, int64_t* anchors) {
  __shared__ int first;
  const float* const rays = batch.world.rays.At(batch.axes.Split(chunk.first + blockIdx.x));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) first = kThreads;
  int64_t start = 0;
  for (; start < pixels; start += kThreads) {
    const bool sees = start + thread < pixels && Sees(rays + (start + thread) * 6);
    if (__syncthreads_count(sees) == 0) continue;
    if (sees) atomicMin(&first, thread);
    break;
  }
  __syncthreads();
  if (thread == 0) anchors[blockIdx.x] = min(start + first, pixels - 1);
}

// Returns whether the splat can be drawn.
__device__ bool PrepareWorld(const SplatBatch& batch, const ImageIndex& image, int64_t id, int64_t anchor,
                             GaussianWorld* to) {
  const WorldBatch& world = batch.world;
  const CanonicalSpace space(world.means.At(image) + id * 3, world.quats.At(image) + id * 4,
                             world.scales.At(image) + id * 3, world.rays.At(image) + anchor * 6);
  if (!space.drawn) return false;
  for (int k = 0; k < 9; ++k) to->a[k / 3][k % 3] = static_cast<float>(space.a[k / 3][k % 3]);
  to->distance = static_cast<float>(space.distance);
  for (int k = 0; k < 3; ++k) {
    to->normal[k] = world.normals.data != nullptr ? world.normals.At(image)[id * 3 + k] : 0.0f;
  }
  return true;
}

__device__ void PrepareOutline(const SplatBatch& batch, const ImageIndex& image, int64_t id, AlphaMin alpha_min,
                               Gaussian2d* to) {
  // Splats along rays may come without an outline on the screen.
  const bool outlined = batch.conics.data != nullptr;
  const float opacity = batch.opacities.At(image)[id];
  const GaussianFields2d f = outlined
                                 ? FieldsOf(batch.means.At(image) + id * 2, batch.conics.At(image) + id * 3, opacity)
                                 : GaussianFields2d{0, 0, 1, 0, 1, opacity};
  const Geometry2d g = Prepare(Vec(f.x), Vec(f.y), Vec(f.a), Vec(f.b), Vec(f.schur), Vec(f.opacity),
                               Vec(alpha_min.value), Log2(Vec(f.opacity * alpha_min.inverse)));
  to->id = static_cast<int32_t>(id);
  const bool finite = SetColor(batch.colors.At(image) + id * batch.channels, batch.channels, to);
  if (!g.drawn.v || !finite) return SetNothing(to);
  to->x = f.x;
  to->y = f.y;
  to->opacity = f.opacity;
  to->l11 = g.l11.v;
  to->l21 = g.l21.v;
  to->l22 = g.l22.v;
  to->floor = g.floor.v;
  to->half_height = g.half_height.v;
  to->shear_y = g.shear_y.v;
  to->inv_l11 = g.inv_l11.v;
  to->level = g.level.v;
  if (!outlined) SetEverywhere(to);
}

template <bool kRays>
__device__ void PrepareSplat(const Extents& extents, const ImageIndex& image, int64_t row, AlphaMin alpha_min) {
  const int64_t size = extents.batch.size;
  PrepareOutline(extents.batch, image, row % size, alpha_min, &extents.splats[row]);
  if constexpr (kRays) {
    const int64_t anchor = extents.anchors[row / size];
    if (!PrepareWorld(extents.batch, image, row % size, anchor, &extents.world[row])) SetNothing(&extents.splats[row]);
  }
}

// The splats of given lists, all of them.
template <bool kRays>
__global__ void PrepareAll(Extents extents, AlphaMin alpha_min) {
  const SplatBatch& batch = extents.batch;
  const int64_t row = ThreadIndex();
  if (row >= extents.chunk.count * batch.size) return;
  PrepareSplat<kRays>(extents, batch.axes.Split(extents.chunk.first + row / batch.size), row, alpha_min);
}

// For each row its splat, how many tiles it touches, and what it is ordered by: image, depth, id.
template <bool kRays>
__global__ void PrepareRows(Extents extents, AlphaMin alpha_min, int32_t* tiles_touched, uint64_t* keys,
                            uint32_t* rows) {
  const SplatBatch& batch = extents.batch;
  const int64_t row = ThreadIndex();
  if (row >= extents.chunk.count * batch.size) return;
  const int64_t local = row / batch.size, id = row % batch.size;
  const ImageIndex image = batch.axes.Split(extents.chunk.first + local);
  const float* depths = batch.depths.data == nullptr ? nullptr : batch.depths.At(image);
  Splats2d one{};
  one.radii = batch.radii.At(image);
  one.depths = depths;
  const bool visible = one.Visible(id);
  int32_t touched = 0;
  if (visible) {
    if (extents.exact) PrepareSplat<kRays>(extents, image, row, alpha_min);
    extents.ForEachSpan(row,
                        [&](int32_t, TileSpan span) { touched += span.x0 <= span.x1 ? span.x1 - span.x0 + 1 : 0; });
  }
  tiles_touched[row] = touched;
  const uint32_t key = !visible ? 0xffffffffu : depths == nullptr ? 0u : DepthKey(depths[id]);
  keys[row] = static_cast<uint64_t>(local) << 32 | key;
  rows[row] = static_cast<uint32_t>(row);
}

__global__ void CountInOrder(int64_t n, const uint32_t* order, const int32_t* tiles_touched, int64_t* counts) {
  const int64_t i = ThreadIndex();
  if (i < n) counts[i] = tiles_touched[order[i]];
}

// Takes the entries of those rows away that end behind the limit of their image.
__global__ void DropBeyond(Chunk chunk, int64_t size, int64_t most, const int64_t* ends, const int64_t* image_ends,
                           int64_t* counts) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count * size) return;
  const int64_t image = i / size, begin = image > 0 ? image_ends[image - 1] : 0;
  if (ends[i] - begin > most) counts[i] = 0;
}

// First place of each kind of damage in given lists.
struct Damage {
  unsigned long long count, offset, id;
};

__global__ void FindDamage(ImageGrid grid, SplatBatch batch, Chunk chunk, Damage* damage) {
  const int64_t i = ThreadIndex(), offsets_size = grid.tiles() + 1, per_image = max(batch.capacity, offsets_size);
  if (i >= chunk.count * per_image) return;
  const int64_t image = i / per_image, k = i % per_image;
  const ImageIndex index = batch.axes.Split(chunk.first + image);
  const int32_t* offsets = batch.offsets.At(index);
  if (k == 0 && *batch.counts.At(index) > batch.capacity)
    atomicMin(&damage->count, static_cast<unsigned long long>(image));
  if (k < offsets_size && (offsets[k] < (k == 0 ? 0 : offsets[k - 1]) || offsets[k] > batch.capacity)) {
    atomicMin(&damage->offset, static_cast<unsigned long long>(image * offsets_size + k));
  }
  if (k >= offsets[0] && k < min(static_cast<int64_t>(offsets[offsets_size - 1]), batch.capacity)) {
    const int32_t id = batch.ids.At(index)[k];
    if (id < 0 || id >= batch.size) atomicMin(&damage->id, static_cast<unsigned long long>(image * batch.capacity + k));
  }
}

// Entries as the caller lists them. One whose id is out of range belongs to no row: it is the last key.
__global__ void TakeEntries(ImageGrid grid, SplatBatch batch, Chunk chunk, uint64_t* entries, uint64_t* keys,
                            uint32_t* values) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count * batch.capacity) return;
  const int64_t image = i / batch.capacity, k = i % batch.capacity;
  const ImageIndex index = batch.axes.Split(chunk.first + image);
  const int32_t* offsets = batch.offsets.At(index);
  const int32_t id = batch.ids.At(index)[k];
  const bool listed = k >= offsets[0] && k < offsets[grid.tiles()] && id >= 0 && id < batch.size;
  const uint64_t row = listed ? static_cast<uint64_t>(image * batch.size + id) : 0xffffffffu;
  entries[i] = row;
  if (keys == nullptr) return;
  keys[i] = row << 32;
  values[i] = static_cast<uint32_t>(i);
}

__global__ void TakeRanges(ImageGrid grid, SplatBatch batch, Chunk chunk, TileRange* ranges) {
  const int64_t i = ThreadIndex();
  if (i >= chunk.count * grid.tiles()) return;
  const int64_t image = i / grid.tiles(), tile = i % grid.tiles(), first = image * batch.capacity;
  const int32_t* offsets = batch.offsets.At(batch.axes.Split(chunk.first + image));
  const auto place = [&](int32_t offset) {
    return static_cast<uint32_t>(first + min(max(static_cast<int64_t>(offset), int64_t{0}), batch.capacity));
  };
  ranges[i] = {place(offsets[tile]), place(offsets[tile + 1])};
}

__global__ void Invert(int64_t n, const uint32_t* values, uint32_t* slots) {
  const int64_t i = ThreadIndex();
  if (i < n) slots[values[i]] = static_cast<uint32_t>(i);
}

// Throws for the first damage.
void RefuseDamage(Device& device, const ImageGrid& grid, const SplatBatch& batch, Chunk chunk) {
  auto* damage = device.Take<Damage>(1);
  device.Fill(damage, 0xff, 1);
  LaunchEach(FindDamage, chunk.count * std::max(batch.capacity, grid.tiles() + 1), device.stream(), grid, batch, chunk,
             damage);
  Damage found;
  device.Read(damage, 1, &found);
  constexpr auto kNone = ~0ull;
  const auto value = [&](const Batched<int32_t>& array, unsigned long long image, unsigned long long place) {
    int32_t read;
    device.Read(array.At(batch.axes.Split(chunk.first + static_cast<int64_t>(image))) + place, 1, &read);
    return std::to_string(read);
  };
  const std::string capacity = std::to_string(batch.capacity);
  if (found.count != kNone) {
    throw std::invalid_argument("tiles: " + value(batch.counts, found.count, 0) +
                                " intersections exceed the capacity of " + capacity + ", so the lists are incomplete");
  }
  if (found.offset != kNone) {
    const auto size = static_cast<unsigned long long>(grid.tiles() + 1), place = found.offset % size;
    throw std::invalid_argument("tiles.tile_offsets must ascend from 0 to at most the capacity of " + capacity +
                                ", got " + value(batch.offsets, found.offset / size, place) + " at " +
                                std::to_string(place));
  }
  if (found.id != kNone) {
    const auto size = static_cast<unsigned long long>(batch.capacity), place = found.id % size;
    throw std::invalid_argument("tiles.gaussian_ids must lie in [0, " + std::to_string(batch.size) + "), got " +
                                value(batch.ids, found.id / size, place) + " at " + std::to_string(place));
  }
}

// With memory for what is prepared, and the anchors.
Extents MakeExtents(Device& device, const ImageGrid& grid, const SplatBatch& batch, Chunk chunk, bool exact) {
  const int64_t rows = chunk.count * batch.size;
  Extents extents{grid, batch, chunk, exact, device.Take<Gaussian2d>(exact ? rows : 0), nullptr, nullptr};
  if (batch.AlongRays()) {
    extents.world = device.Take<GaussianWorld>(rows);
    auto* anchors = device.Take<int64_t>(chunk.count);
    Launch(FindAnchors, chunk.count, kThreads, device.stream(), batch, chunk, grid.width * grid.height, anchors);
    extents.anchors = anchors;
  }
  return extents;
}

}  // namespace

bool FindLists(Device& device, const ImageGrid& grid, double alpha_min, bool exact, const SplatBatch& batch,
               Chunk chunk, TileLists* lists) {
  const int64_t rows = chunk.count * batch.size, tiles = chunk.count * grid.tiles();
  const Extents extents = MakeExtents(device, grid, batch, chunk, exact);
  auto* touched = device.Take<int32_t>(rows);
  auto* keys = device.Take<uint64_t>(rows);
  auto* order = device.Take<uint32_t>(rows);
  auto* counts = device.Take<int64_t>(rows);
  auto* ends = device.Take<int64_t>(rows);
  auto* image_ends = device.Take<int64_t>(chunk.count);
  if (rows > 0) {
    LaunchEach(batch.AlongRays() ? PrepareRows<true> : PrepareRows<false>, rows, device.stream(), extents,
               AlphaMin(alpha_min), touched, keys, order);
    SortPairs(device, rows, 0, 32 + Bits(chunk.count - 1), &keys, &order);
    LaunchEach(CountInOrder, rows, device.stream(), rows, order, touched, counts);
    InclusiveSum(device, rows, counts, ends);
  }
  FindImageEnds(device, chunk, batch.size, ends, image_ends);
  int64_t size = chunk.count * batch.most_entries;
  if (batch.most_entries > 0) {
    auto* ends_that_fit = device.Take<int64_t>(rows);
    if (rows > 0) {
      LaunchEach(DropBeyond, rows, device.stream(), chunk, batch.size, batch.most_entries, ends, image_ends, counts);
      InclusiveSum(device, rows, counts, ends_that_fit);
    }
    ends = ends_that_fit;
  } else {
    size = ReadSize(device, chunk, image_ends);
    if (size > kEntriesInFlight && chunk.count > 1) return false;
  }
  auto* entries = device.Take<uint64_t>(size);
  auto* slots = device.Take<uint32_t>(size);
  auto* ranges = device.Take<TileRange>(tiles);
  if (size > 0) {
    // What no row fills is sorted behind the last tile.
    if (batch.most_entries > 0) device.Fill(entries, 0xff, size);
    LaunchEach(EmitEntries<Extents>, rows, device.stream(), extents, order, ends, entries, slots);
  }
  SortByTile(device, size, tiles, &entries, &slots, ranges);
  *lists = {extents.splats, extents.world, extents.anchors, entries,   slots, size, ranges,
            order,          ends,          touched,         image_ends};
  return true;
}

TileLists FromGivenLists(Device& device, const ImageGrid& grid, const SplatBatch& batch, Chunk chunk, double alpha_min,
                         bool slots) {
  RefuseDamage(device, grid, batch, chunk);
  const int64_t rows = chunk.count * batch.size, size = chunk.count * batch.capacity,
                tiles = chunk.count * grid.tiles();
  const Extents extents = MakeExtents(device, grid, batch, chunk, true);
  auto* entries = device.Take<uint64_t>(size);
  auto* ranges = device.Take<TileRange>(tiles);
  TileLists lists{extents.splats, extents.world, extents.anchors, entries, nullptr, size, ranges};
  auto* keys = slots ? device.Take<uint64_t>(size) : nullptr;
  auto* values = slots ? device.Take<uint32_t>(size) : nullptr;
  LaunchEach(batch.AlongRays() ? PrepareAll<true> : PrepareAll<false>, rows, device.stream(), extents,
             AlphaMin(alpha_min));
  LaunchEach(TakeEntries, size, device.stream(), grid, batch, chunk, entries, keys, values);
  LaunchEach(TakeRanges, tiles, device.stream(), grid, batch, chunk, ranges);
  if (slots) {
    auto* slot_of = device.Take<uint32_t>(size);
    auto* ends = device.Take<int64_t>(rows);
    if (size > 0) SortPairs(device, size, 32, 64, &keys, &values);
    LaunchEach(Invert, size, device.stream(), size, values, slot_of);
    FindEnds(device, keys, size, rows, ends);
    lists.slots = slot_of;
    lists.slot_ends = ends;
  }
  return lists;
}

}  // namespace jaxsplat::cuda
