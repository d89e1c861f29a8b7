#include "cpu/scratch.h"

#include <sys/mman.h>

#include <algorithm>
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
    void* data = std::aligned_alloc(alignment, size);
    if (data == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (size >= kHugePage) madvise(data, size, MADV_HUGEPAGE);
#endif
    blocks_.push_back({static_cast<char*>(data), size});
    used_ = 0;
  }

  void Release() {
    for (const Block& block : blocks_) std::free(block.data);
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

}  // namespace

Scratch::Scratch() {
  FreeList& idle = Idle();
  {
    std::lock_guard<std::mutex> lock(idle.mutex);
    if (!idle.arenas.empty()) {
      arena_ = std::move(idle.arenas.back());
      idle.arenas.pop_back();
    }
  }
  if (!arena_) arena_ = std::make_unique<Arena>();
}

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

size_t Scratch::capacity() const { return arena_->capacity(); }

void* Scratch::Bytes(size_t size) { return arena_->Bytes(size); }

}  // namespace jaxsplat
