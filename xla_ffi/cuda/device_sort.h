// The algorithms that CUB provides, compiled once.
#ifndef JAXSPLAT_CUDA_DEVICE_SORT_H_
#define JAXSPLAT_CUDA_DEVICE_SORT_H_

#include <cstdint>

#include "cuda/device.h"

namespace jaxsplat::cuda {

// Stable sort by bits [begin_bit, end_bit) of the keys. The results are in *keys and *values, which may be other memory
// than before.
void SortPairs(Device& device, int64_t n, int begin_bit, int end_bit, uint64_t** keys, uint32_t** values);

// sums[i] = values[0] + ... + values[i].
void InclusiveSum(Device& device, int64_t n, const int64_t* values, int64_t* sums);

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_DEVICE_SORT_H_
