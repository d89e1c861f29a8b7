// Launches, errors and scratch memory, without XLA.
//
// Kernels are launched by cudaLaunchKernelEx, an ordinary template: a plain C++ compiler reads the same source.
#ifndef JAXSPLAT_CUDA_LAUNCH_H_
#define JAXSPLAT_CUDA_LAUNCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace jaxsplat::cuda {

inline constexpr int kThreads = 256;

// Throws if there was an error.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string message = std::string("CUDA: ") + what + ": " + cudaGetErrorString(error);
  cudaGetLastError();  // clears it
  throw std::runtime_error(message);
}

// Runs `kernel` with `blocks` blocks; none are no error.
template <class... P, class... A>
void Launch(void (*kernel)(P...), int64_t blocks, int threads, cudaStream_t stream, A&&... arguments) {
  if (blocks == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  Check(cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...), "launch");
}

// Runs `kernel` with a thread for each of n elements.
template <class... P, class... A>
void LaunchEach(void (*kernel)(P...), int64_t n, cudaStream_t stream, A&&... arguments) {
  Launch(kernel, (n + kThreads - 1) / kThreads, kThreads, stream, std::forward<A>(arguments)...);
}

// A stream, and scratch memory that is valid on it until the call of XLA ends.
class Device {
 public:
  explicit Device(cudaStream_t stream) : stream_(stream) {}
  virtual ~Device() = default;
  Device(Device&&) = default;

  cudaStream_t stream() const { return stream_; }

  // Uninitialised memory for n elements. Throws std::bad_alloc.
  template <class T>
  T* Take(int64_t n) {
    return static_cast<T*>(Bytes(std::max<size_t>(static_cast<size_t>(n) * sizeof(T), 1)));
  }

  // Gives all memory back, for kernels that are launched later.
  void Rewind() {
    for (Block& block : blocks_) block.used = 0;
  }

  // Copies from the device and waits for it.
  template <class T>
  void Read(const T* from, int64_t n, T* to) {
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(n) * sizeof(T), cudaMemcpyDeviceToHost, stream_), "read");
    Check(cudaStreamSynchronize(stream_), "read");
  }

  // Fills with a byte.
  template <class T>
  void Fill(T* data, int byte, int64_t n) {
    if (n > 0) Check(cudaMemsetAsync(data, byte, static_cast<size_t>(n) * sizeof(T), stream_), "fill");
  }

 protected:
  // Aligned to 16 bytes at least.
  virtual void* Allocate(size_t bytes) = 0;

 private:
  struct Block {
    char* data;
    size_t size, used;
  };

  void* Bytes(size_t size) {
    constexpr size_t kAlignment = 256, kSmallest = size_t{1} << 20;
    size = (size + kAlignment - 1) / kAlignment * kAlignment;
    for (Block& block : blocks_) {
      if (block.size - block.used < size) continue;
      block.used += size;
      return block.data + block.used - size;
    }
    const size_t total = std::max(size, kSmallest);
    blocks_.push_back({static_cast<char*>(Allocate(total)), total, size});
    return blocks_.back().data;
  }

  cudaStream_t stream_;
  std::vector<Block> blocks_;
};

// The number of this thread among all of its kernel.
__device__ inline int64_t ThreadIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_LAUNCH_H_
