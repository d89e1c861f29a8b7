// Results of tracing one image: which splats its pixels blend.
#ifndef JAXSPLAT_OPS_TRACE_CONTRIBUTORS_H_
#define JAXSPLAT_OPS_TRACE_CONTRIBUTORS_H_

#include <cstdint>

namespace jaxsplat {

struct Contributors {
  int64_t most;           // K
  bool by_weight;         // list those of the largest weight, not the nearest
  int32_t* counts;        // [H, W] how many there are, also where they exceed K
  int32_t* ids;           // [H, W, K], -1 beyond the last
  float* alphas;          // [H, W, K], 0 beyond the last
  float* transmittances;  // [H, W, K] in front of each, 0 beyond the last
  float* splat_weights;   // [N] sum over the pixels of alpha times transmittance
  int32_t* splat_counts;  // [N] number of pixels
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_TRACE_CONTRIBUTORS_H_
