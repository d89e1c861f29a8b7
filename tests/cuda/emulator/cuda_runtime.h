// The part of CUDA that the kernels use, as plain C++: kernels run on the CPU, for tests where there is no GPU.
//
// Each thread of a block is a fiber, which gives way at barriers and warp collectives only (in the race build also at
// memory accesses). Blocks run one after another. What is not shown: weak memory order, CUB itself, the rounding of the
// device's fast functions, limits of registers, speed.
#ifndef JAXSPLAT_EMULATOR_CUDA_RUNTIME_H_
#define JAXSPLAT_EMULATOR_CUDA_RUNTIME_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// --- Qualifiers ------------------------------------------------------------------------------------------------------
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#if defined(__SANITIZE_ADDRESS__)
// AddressSanitizer guards ordinary statics only.
#define __shared__ static
#else
// All of them lie together, so that they can be found and poisoned.
#define __shared__ static thread_local
#endif

// --- Types and built-in variables ------------------------------------------------------------------------------------
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern uint3 threadIdx;
extern dim3 blockIdx, blockDim;

// --- Barriers and warp collectives: they name their place in errors --------------------------------------------------
namespace emulator {

struct Place {
  const char* file;
  int line;
};
#define EMULATOR_HERE emulator::Place place = {__builtin_FILE(), __builtin_LINE()}

int LaneId();
// The number of threads with `predicate` set.
int Barrier(int predicate, Place place);
// Every lane of `mask` hands in `size` bytes (8 at most); `all` gets those of 32 lanes.
void Collect(const void* value, size_t size, unsigned mask, void* all, Place place);
// Tells the race detector; may let another thread run.
void NoteAtomic(const void* address, size_t size);

template <class T>
T Exchange(unsigned mask, T value, int lane, Place place) {
  T all[32];
  Collect(&value, sizeof(T), mask, all, place);
  return all[lane];
}

}  // namespace emulator

inline void __syncthreads(EMULATOR_HERE) { emulator::Barrier(0, place); }
inline int __syncthreads_count(int predicate, EMULATOR_HERE) { return emulator::Barrier(predicate != 0, place); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int = 32, EMULATOR_HERE) {
  return emulator::Exchange(mask, value, emulator::LaneId() ^ lanes, place);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int lanes, int = 32, EMULATOR_HERE) {
  const int from = emulator::LaneId() + lanes;
  return emulator::Exchange(mask, value, from < 32 ? from : emulator::LaneId(), place);
}
inline int __any_sync(unsigned mask, int predicate, EMULATOR_HERE) {
  const unsigned char own = predicate != 0;
  unsigned char all[32] = {};
  emulator::Collect(&own, 1, mask, all, place);
  int any = 0;
  for (int lane = 0; lane < 32; ++lane) any |= (mask >> lane & 1) != 0 && all[lane] != 0;
  return any;
}

// --- Atomics and functions -------------------------------------------------------------------------------------------
template <class T>
__attribute__((noinline, no_sanitize("thread"))) T atomicMin(T* address, T value) {
  emulator::NoteAtomic(address, sizeof(T));
  const T old = *address;
  if (value < old) *address = value;
  return old;
}
inline int __float_as_int(float a) {
  int bits;
  memcpy(&bits, &a, sizeof(bits));
  return bits;
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

// --- Host interface --------------------------------------------------------------------------------------------------
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind { cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
struct EmulatedStream {
  bool captures = false;
  std::vector<std::function<void()>> captured;
};
typedef EmulatedStream* cudaStream_t;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
cudaError_t cudaMalloc(void** data, size_t size);
cudaError_t cudaFree(void* data);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int byte, size_t size, cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);

namespace emulator {

// Runs now, or at the next synchronisation where EMULATOR_DEFER is set; or is captured.
void Enqueue(std::function<void()> work, cudaStream_t stream);
cudaError_t LaunchGrid(dim3 grid, dim3 block, cudaStream_t stream, std::function<void()> kernel);
// From here on nothing runs, and to allocate, to wait, and to copy to the host are errors.
void BeginCapture(cudaStream_t stream);
// Ends it, and runs what was captured: twice, as a CUDA graph that is run again.
void Replay(cudaStream_t stream);
// The race detector watches between these.
void Watch(bool on);

template <class... P, size_t... I>
__attribute__((no_sanitize("thread"))) void Call(void (*kernel)(P...), const std::tuple<P...>& arguments,
                                                 std::index_sequence<I...>) {
  Watch(true);
  kernel(std::get<I>(arguments)...);
  Watch(false);
}

}  // namespace emulator

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  std::tuple<P...> copies(static_cast<P>(arguments)...);
  return emulator::LaunchGrid(config->gridDim, config->blockDim, config->stream,
                              [kernel, copies] { emulator::Call(kernel, copies, std::index_sequence_for<P...>()); });
}

#endif  // JAXSPLAT_EMULATOR_CUDA_RUNTIME_H_
