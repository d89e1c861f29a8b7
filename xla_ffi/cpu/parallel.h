// A loop shared between the caller and a thread pool. The caller works too and waits only for iterations that are
// already running, so it cannot deadlock, however small the pool is and whatever else waits in it.
#ifndef JAXSPLAT_CPU_PARALLEL_H_
#define JAXSPLAT_CPU_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace jaxsplat {

class Pool {
 public:
  virtual ~Pool() = default;
  virtual int64_t NumThreads() const = 0;
  virtual void Schedule(std::function<void()> task) = 0;
};

// Calls f(i) for i in [0, n), in any order, at most once each. With no pool, or n < 2, in the calling thread alone.
// The first exception is thrown again in the calling thread when all iterations are over.
template <class F>
void ParallelFor(Pool* pool, int64_t n, const F& f) {
  if (pool == nullptr || n < 2) {
    for (int64_t i = 0; i < n; ++i) f(i);
    return;
  }
  struct State {
    const F* f;
    int64_t n;
    std::atomic<int64_t> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable finished;
    std::exception_ptr error;

    void Run() {
      for (int64_t i = next.fetch_add(1); i < n; i = next.fetch_add(1)) {
        try {
          (*f)(i);
        } catch (...) {
          std::lock_guard<std::mutex> lock(mutex);
          if (!error) error = std::current_exception();
        }
        if (done.fetch_add(1) + 1 == n) {
          std::lock_guard<std::mutex> lock(mutex);
          finished.notify_all();
        }
      }
    }
  };
  // Shared: a helper that starts late finds nothing left to do and must still be able to look.
  auto state = std::make_shared<State>();
  state->f = &f;
  state->n = n;
  const int64_t helpers = std::min(pool->NumThreads(), n - 1);
  for (int64_t h = 0; h < helpers; ++h) pool->Schedule([state] { state->Run(); });
  state->Run();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->finished.wait(lock, [&] { return state->done.load() == n; });
  if (state->error) std::rethrow_exception(state->error);
}

// Splits [0, n) into chunks of at least `grain`, at most `most` of them, whose bounds depend on n alone.
struct Chunks {
  int64_t n, count;
  Chunks(int64_t n, int64_t grain, int64_t most) : n(n), count(std::clamp<int64_t>(n / grain, 1, most)) {}
  int64_t begin(int64_t chunk) const { return n * chunk / count; }
  int64_t end(int64_t chunk) const { return n * (chunk + 1) / count; }
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_PARALLEL_H_
