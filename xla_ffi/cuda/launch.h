// Kernels are launched by cudaLaunchKernelEx, an ordinary template: a plain C++ compiler reads the same source.
#ifndef JAXSPLAT_CUDA_LAUNCH_H_
#define JAXSPLAT_CUDA_LAUNCH_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "cuda/device.h"

namespace jaxsplat::cuda {

inline constexpr int kThreads = 256;

// Runs `kernel` with `blocks` blocks; none are no error.
template <class... P, class... A>
void Launch(void (*kernel)(P...), int64_t blocks, int threads, cudaStream_t stream, A&&... arguments) {
  if (blocks == 0) return;
  if (blocks > INT32_MAX) {
    throw std::invalid_argument(
        "CUDA: " + std::to_string(blocks) +
        " blocks of threads are more than a device starts at once; render fewer or smaller images");
  }
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

// The number of this thread among all of its kernel.
__device__ inline int64_t ThreadIndex() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_LAUNCH_H_
