// How images are shared between threads: several at once while there are enough of them, else the tiles of one at a
// time.
#ifndef JAXSPLAT_FFI_IMAGES_H_
#define JAXSPLAT_FFI_IMAGES_H_

#include <functional>
#include <utility>

#include "cpu/parallel.h"
#include "xla/ffi/api/ffi.h"

namespace jaxsplat {

class XlaPool final : public Pool {
 public:
  explicit XlaPool(xla::ffi::ThreadPool pool) : pool_(pool) {}
  int64_t NumThreads() const override { return pool_.num_threads(); }
  void Schedule(std::function<void()> task) override { pool_.Schedule(std::move(task)); }

 private:
  xla::ffi::ThreadPool pool_;
};

// Calls f(pool or null, image) for every image. Scratch memory is that of the images in flight, not of the batch.
template <class F>
void ForEachImage(Pool& pool, int64_t images, const F& f) {
  if (images >= 4 * pool.NumThreads()) {
    ParallelFor(&pool, images, [&](int64_t image) { f(nullptr, image); });
  } else {
    for (int64_t image = 0; image < images; ++image) f(&pool, image);
  }
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_FFI_IMAGES_H_
