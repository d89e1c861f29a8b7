#include <cub/cub.cuh>

#include "cuda/device_sort.h"

namespace jaxsplat::cuda {

void SortPairs(Device& device, int64_t n, int begin_bit, int end_bit, uint64_t** keys, uint32_t** values) {
  cub::DoubleBuffer<uint64_t> key_buffers(*keys, device.Take<uint64_t>(n));
  cub::DoubleBuffer<uint32_t> value_buffers(*values, device.Take<uint32_t>(n));
  size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    Check(cub::DeviceRadixSort::SortPairs(scratch, bytes, key_buffers, value_buffers, n, begin_bit, end_bit,
                                          device.stream()),
          "sort");
  };
  sort(nullptr);
  sort(device.Take<char>(static_cast<int64_t>(bytes)));
  *keys = key_buffers.Current();
  *values = value_buffers.Current();
}

void InclusiveSum(Device& device, int64_t n, const int64_t* values, int64_t* sums) {
  size_t bytes = 0;
  const auto scan = [&](void* scratch) {
    Check(cub::DeviceScan::InclusiveSum(scratch, bytes, values, sums, n, device.stream()), "sum");
  };
  scan(nullptr);
  scan(device.Take<char>(static_cast<int64_t>(bytes)));
}

}  // namespace jaxsplat::cuda
