// Sums of several values over the lanes of a warp.
#ifndef JAXSPLAT_CUDA_WARP_SUM_H_
#define JAXSPLAT_CUDA_WARP_SUM_H_

#include "cuda/tile_blocks.h"

namespace jaxsplat::cuda {

// Transposed: at each step a lane hands half of its values to a partner and takes the partner's other half, so that
// nine values take 12 shuffles and not 45. v[0] of lane l ends as the sum of value SumIndex<kValues>(l).
template <int kValues, int kStep = kWarp / 2, int kSize>
__device__ __forceinline__ void SumLanes(float (&v)[kSize], int lane) {
  if constexpr (kStep > 0) {
    if constexpr (kValues == 1) {
      v[0] += __shfl_xor_sync(kAllLanes, v[0], kStep);
      SumLanes<1, kStep / 2>(v, lane);
    } else {
      constexpr int kHalf = (kValues + 1) / 2;
      const bool upper = (lane & kStep) != 0;
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const float low = v[i], high = kHalf + i < kValues ? v[kHalf + i] : 0.0f;
        v[i] = (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, kStep);
      }
      SumLanes<kHalf, kStep / 2>(v, lane);
    }
  }
}

// Which value a lane ends up with; -1 where it has none of its own.
template <int kValues, int kStep = kWarp / 2>
__device__ __forceinline__ int SumIndex(int lane) {
  if constexpr (kStep == 0) {
    return 0;
  } else if constexpr (kValues == 1) {
    return (lane & kStep) != 0 ? -1 : SumIndex<1, kStep / 2>(lane);
  } else {
    constexpr int kHalf = (kValues + 1) / 2;
    const int within = SumIndex<kHalf, kStep / 2>(lane), index = (lane & kStep) != 0 ? kHalf + within : within;
    return within >= 0 && index < kValues ? index : -1;
  }
}

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_WARP_SUM_H_
