// The calls of CUB that the library makes, with its protocol of two phases.
#ifndef JAXSPLAT_EMULATOR_CUB_CUB_CUH_
#define JAXSPLAT_EMULATOR_CUB_CUB_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace cub {

template <class T>
struct DoubleBuffer {
  T* d_buffers[2];
  int selector = 0;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

namespace internal {

// First phase: says how much scratch is needed. Second: checks it, and scribbles over it as a real algorithm does.
inline bool IsSizeQuery(void* scratch, size_t* size, size_t needed, cudaError_t* error) {
  *error = scratch != nullptr && *size < needed ? cudaErrorInvalidValue : cudaSuccess;
  if (scratch == nullptr) {
    *size = needed;
    return true;
  }
  if (*error == cudaSuccess) std::memset(scratch, 0xa5, needed);
  return *error != cudaSuccess;
}

}  // namespace internal

struct DeviceRadixSort {
  template <class K, class V>
  static cudaError_t SortPairs(void* scratch, size_t& size, DoubleBuffer<K>& keys, DoubleBuffer<V>& values, int64_t n,
                               int begin_bit, int end_bit, cudaStream_t stream) {
    cudaError_t error;
    if (internal::IsSizeQuery(scratch, &size, 256 + static_cast<size_t>(n), &error)) return error;
    emulator::Enqueue(
        [=]() mutable {
          const K mask =
              end_bit - begin_bit >= static_cast<int>(sizeof(K)) * 8 ? ~K{0} : (K{1} << (end_bit - begin_bit)) - 1;
          const auto digits = [&](size_t i) { return static_cast<K>(keys.Current()[i] >> begin_bit) & mask; };
          std::vector<size_t> order(static_cast<size_t>(n));
          std::iota(order.begin(), order.end(), size_t{0});
          std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return digits(a) < digits(b); });
          for (size_t i = 0; i < order.size(); ++i) {
            keys.Alternate()[i] = keys.Current()[order[i]];
            values.Alternate()[i] = values.Current()[order[i]];
          }
        },
        stream);
    keys.selector ^= 1;
    values.selector ^= 1;
    return cudaSuccess;
  }
};

struct DeviceScan {
  template <class T>
  static cudaError_t InclusiveSum(void* scratch, size_t& size, const T* values, T* sums, int64_t n,
                                  cudaStream_t stream) {
    cudaError_t error;
    if (internal::IsSizeQuery(scratch, &size, 256, &error)) return error;
    emulator::Enqueue([=] { std::partial_sum(values, values + n, sums); }, stream);
    return cudaSuccess;
  }
};

}  // namespace cub

#endif  // JAXSPLAT_EMULATOR_CUB_CUB_CUH_
