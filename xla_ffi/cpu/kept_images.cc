#include "cpu/kept_images.h"

#include <cstring>
#include <list>
#include <mutex>
#include <utility>

namespace jaxsplat {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr int64_t kGrain = 1 << 14;  // splats
constexpr int64_t kMostChunks = 64;
constexpr int kStreams = 8;

uint64_t Rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

// Multiplication carries differences upwards in a word, rotation brings them down again.
class Hash {
 public:
  Hash() {
    for (int i = 0; i < kStreams; ++i) state_[i] = 0x9e3779b97f4a7c15u * static_cast<uint64_t>(i + 1);
  }

  template <class T>
  void Add(const T* values, int64_t n) {
    const char* bytes = reinterpret_cast<const char*>(values);
    size_t left = static_cast<size_t>(n) * sizeof(T);
    for (; left >= sizeof(state_); left -= sizeof(state_), bytes += sizeof(state_)) Block(bytes);
    char rest[sizeof(state_)] = {};
    if (left > 0) std::memcpy(rest, bytes, left);
    Block(rest);
    const uint64_t length[kStreams] = {static_cast<uint64_t>(n)};
    Block(reinterpret_cast<const char*>(length));
  }

  Fingerprint Value() const {
    Fingerprint result{0, ~uint64_t{0}};
    for (int i = 0; i < kStreams; ++i) {
      result.first = Mix(result.first, state_[i]);
      result.second = Mix(result.second, Rotate(state_[i], 32));
    }
    return result;
  }

 private:
  static uint64_t Mix(uint64_t state, uint64_t word) {
    state = (state ^ word) * 0xff51afd7ed558ccdu;
    state = (state ^ state >> 32) * 0xc4ceb9fe1a85ec53u;
    return state ^ state >> 29;
  }

  void Block(const char* bytes) {
    uint64_t words[kStreams];
    std::memcpy(words, bytes, sizeof(words));
    for (int i = 0; i < kStreams; ++i) state_[i] = Rotate(state_[i] ^ words[i], 29) * 0x9fb21c651e98df25u;
  }

  uint64_t state_[kStreams];
};

struct Entry {
  Fingerprint fingerprint;
  PreparedImage image;
};

struct Store {
  std::mutex mutex;
  std::list<Entry> entries;  // oldest first

  size_t bytes() const {
    size_t sum = 0;
    for (const Entry& entry : entries) sum += entry.image.scratch.capacity();
    return sum;
  }
};

Store& TheStore() {
  static Store* store = new Store;  // never destroyed: threads may outlive static destructors
  return *store;
}

}  // namespace

Fingerprint FingerprintOf(Pool* pool, const ImageGrid& grid, double alpha_min, const Splats2d& splats) {
  Scratch scratch;
  const Chunks chunks(splats.size, kGrain, kMostChunks);
  auto* parts = scratch.Take<Fingerprint>(chunks.count);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    const int64_t begin = chunks.begin(chunk), n = chunks.end(chunk) - begin;
    Hash hash;
    hash.Add(splats.means + 2 * begin, 2 * n);
    hash.Add(splats.conics + 3 * begin, 3 * n);
    hash.Add(splats.colors + splats.channels * begin, splats.channels * n);
    hash.Add(splats.opacities + begin, n);
    hash.Add(splats.depths + begin, n);
    hash.Add(splats.radii + 2 * begin, 2 * n);
    if (splats.world != nullptr) {
      const WorldSplats& world = *splats.world;
      hash.Add(world.means + 3 * begin, 3 * n);
      hash.Add(world.quats + 4 * begin, 4 * n);
      hash.Add(world.scales + 3 * begin, 3 * n);
      if (world.normals != nullptr) hash.Add(world.normals + 3 * begin, 3 * n);
    }
    parts[chunk] = hash.Value();
  });
  Hash hash;
  hash.Add(parts, chunks.count);
  const int64_t sizes[] = {splats.size,           splats.channels, grid.width,
                           grid.height,           grid.tile_size,  splats.list_rule.most_entries,
                           splats.list_rule.boxes};
  hash.Add(sizes, 7);
  hash.Add(&alpha_min, 1);
  if (splats.world != nullptr) hash.Add(FindAnchor(grid, splats.world->rays), 3);
  return hash.Value();
}

void Keep(const Fingerprint& fingerprint, PreparedImage image) {
  std::list<Entry> gone;  // given back without the lock
  Store& store = TheStore();
  std::lock_guard<std::mutex> lock(store.mutex);
  store.entries.push_back({fingerprint, std::move(image)});
  while (!store.entries.empty() && (store.entries.size() > kMostKeptImages || store.bytes() > kMostBytes)) {
    gone.splice(gone.end(), store.entries, store.entries.begin());
  }
}

std::optional<PreparedImage> TakeKept(const Fingerprint& fingerprint) {
  Store& store = TheStore();
  std::lock_guard<std::mutex> lock(store.mutex);
  for (auto entry = store.entries.begin(); entry != store.entries.end(); ++entry) {
    if (!(entry->fingerprint == fingerprint)) continue;
    PreparedImage image = std::move(entry->image);
    store.entries.erase(entry);
    return image;
  }
  return std::nullopt;
}

}  // namespace jaxsplat
