#include "cpu/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace jaxsplat {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallest = size_t{1} << 20;
// An arena that grew beyond this goes back to the system after use, and at most so many idle ones are kept.
constexpr size_t kLargestKept = size_t{1} << 30;
constexpr size_t kMostKept = 64;

}  // namespace

class Arena {
 public:
  ~Arena() { Release(); }

  void* Bytes(size_t size) {
    size = (std::max<size_t>(size, 1) + kLine - 1) / kLine * kLine;
    if (blocks_.empty() || used_ + size > blocks_.back().size) {
      if (used_ == 0) Release();
      Add(std::max({size, kSmallest, blocks_.empty() ? 0 : 2 * blocks_.back().size}));
    }
    void* result = blocks_.back().data + used_;
    used_ += size;
    return result;
  }

  size_t capacity() const {
    size_t total = 0;
    for (const Block& block : blocks_) total += block.size;
    return total;
  }

  // Makes all memory free again, in one piece next time.
  bool Reset() {
    const size_t total = capacity();
    if (blocks_.size() > 1) {
      Release();
      if (total <= kLargestKept) {
        try {
          Add(total);
        } catch (const std::bad_alloc&) {
          return false;
        }
      }
    }
    used_ = 0;
    return total <= kLargestKept;
  }

 private:
  struct Block {
    char* data;
    size_t size;
  };

  void Add(size_t size) {
    const size_t alignment = size >= kHugePage ? kHugePage : kLine;
    size = (size + alignment - 1) / alignment * alignment;
    blocks_.push_back(
        {size >= kHugePage ? MapHugePages(size) : static_cast<char*>(std::aligned_alloc(kLine, size)), size});
    if (blocks_.back().data == nullptr) {
      blocks_.pop_back();
      throw std::bad_alloc();
    }
    used_ = 0;
  }

  // From the system itself: what the C library is given back, a program may have told it to hold on to.
  static char* MapHugePages(size_t size) {
    void* const mapped = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* const data = static_cast<char*>(mapped);
    const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(data) % kHugePage) % kHugePage;
    if (before > 0) munmap(data, before);
    munmap(data + before + size, kHugePage - before);
#ifdef MADV_HUGEPAGE
    madvise(data + before, size, MADV_HUGEPAGE);
#endif
    return data + before;
  }

  void Release() {
    for (const Block& block : blocks_) {
      if (block.size >= kHugePage) {
        munmap(block.data, block.size);
      } else {
        std::free(block.data);
      }
    }
    blocks_.clear();
  }

  std::vector<Block> blocks_;
  size_t used_ = 0;
};

namespace {

struct FreeList {
  std::mutex mutex;
  std::vector<std::unique_ptr<Arena>> arenas;
};

FreeList& Idle() {
  static FreeList* list = new FreeList;  // never destroyed: threads may outlive static destructors
  return *list;
}

// The smallest idle arena that has `size` bytes, or else the smallest of all: those for little work stay small.
std::unique_ptr<Arena> TakeIdle(size_t size) {
  FreeList& idle = Idle();
  std::lock_guard<std::mutex> lock(idle.mutex);
  if (idle.arenas.empty()) return std::make_unique<Arena>();
  const auto rank = [size](const std::unique_ptr<Arena>& arena) {
    return std::pair(arena->capacity() < size, arena->capacity());
  };
  const auto best = std::min_element(idle.arenas.begin(), idle.arenas.end(),
                                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::unique_ptr<Arena> arena = std::move(*best);
  *best = std::move(idle.arenas.back());
  idle.arenas.pop_back();
  return arena;
}

}  // namespace

Scratch::Scratch() = default;

Scratch::~Scratch() {
  if (!arena_ || !arena_->Reset()) return;
  FreeList& idle = Idle();
  std::lock_guard<std::mutex> lock(idle.mutex);
  if (idle.arenas.size() < kMostKept) idle.arenas.push_back(std::move(arena_));
}

Scratch::Scratch(Scratch&&) noexcept = default;

Scratch& Scratch::operator=(Scratch&& other) noexcept {
  std::swap(arena_, other.arena_);
  return *this;
}

size_t Scratch::capacity() const { return arena_ ? arena_->capacity() : 0; }

void* Scratch::Bytes(size_t size) {
  if (!arena_) arena_ = TakeIdle(size);
  return arena_->Bytes(size);
}

}  // namespace jaxsplat
