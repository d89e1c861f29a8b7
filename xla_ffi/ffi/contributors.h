// What the calls that trace pixels return, for each primitive the same.
#ifndef JAXSPLAT_FFI_CONTRIBUTORS_H_
#define JAXSPLAT_FFI_CONTRIBUTORS_H_

#include <cstdint>

#include "ffi/call.h"
#include "ops/trace_contributors.h"

namespace jaxsplat {

struct ContributorResults {
  Call& call;
  Out<int32_t> counts{call, "counts", 2}, ids{call, "ids", 3};
  Out<float> alphas{call, "alphas", 3}, transmittances{call, "transmittances", 3};
  Out<float> splat_weights{call, "splat_weights", 1};
  Out<int32_t> splat_counts{call, "splat_counts", 1};
  bool by_weight = call.Attribute<bool>("by_weight");

  Contributors At(int64_t image) const {
    return {ids.dim(2),
            by_weight,
            counts.At(image),
            ids.At(image),
            alphas.At(image),
            transmittances.At(image),
            splat_weights.At(image),
            splat_counts.At(image)};
  }
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_FFI_CONTRIBUTORS_H_
