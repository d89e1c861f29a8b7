// A stream with scratch memory, and errors: what the host needs of CUDA, without XLA.
#ifndef JAXSPLAT_CUDA_DEVICE_H_
#define JAXSPLAT_CUDA_DEVICE_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace jaxsplat::cuda {

// Throws if there was an error.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const std::string message = std::string("CUDA: ") + what + ": " + cudaGetErrorString(error);
  cudaGetLastError();  // clears it
  throw std::runtime_error(message);
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

  // From now on no memory is taken but this, and nothing is read: what is launched can be recorded and run again.
  void UseOnly(void* workspace, size_t bytes) {
    blocks_ = {{static_cast<char*>(workspace), bytes, 0}};
    fixed_ = true;
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
    if (fixed_) throw std::logic_error("CUDA: the workspace has no room for " + std::to_string(size) + " more bytes");
    const size_t total = std::max(size, kSmallest);
    blocks_.push_back({static_cast<char*>(Allocate(total)), total, size});
    return blocks_.back().data;
  }

  cudaStream_t stream_;
  std::vector<Block> blocks_;
  bool fixed_ = false;
};

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_DEVICE_H_
