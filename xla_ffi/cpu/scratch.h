// Scratch memory that is kept between calls: a fresh large allocation costs more in page faults than a small render.
#ifndef JAXSPLAT_CPU_SCRATCH_H_
#define JAXSPLAT_CPU_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace jaxsplat {

class Arena;

// Owns an arena from a process-wide free list from its first use until it goes out of scope. Used by one thread at a
// time. Only assigned to and destroyed once moved from.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(Scratch&&) noexcept;
  Scratch& operator=(Scratch&&) noexcept;

  // Uninitialised, aligned to 64 bytes. Throws std::bad_alloc.
  template <class T>
  T* Take(int64_t n) {
    return static_cast<T*>(Bytes(static_cast<size_t>(n) * sizeof(T)));
  }

  // What the arena holds, in use or not.
  size_t capacity() const;

 private:
  void* Bytes(size_t size);
  std::unique_ptr<Arena> arena_;
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_SCRATCH_H_
