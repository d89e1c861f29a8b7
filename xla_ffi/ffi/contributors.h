// What the calls that trace pixels return, for each primitive the same.
#ifndef JAXSPLAT_FFI_CONTRIBUTORS_H_
#define JAXSPLAT_FFI_CONTRIBUTORS_H_

#include <cstdint>

#include "ffi/operands.h"
#include "ops/trace_contributors.h"

namespace jaxsplat {

struct ContributorResults {
  S32Result counts, ids;
  F32Result alphas, transmittances, splat_weights;
  S32Result splat_counts;

  Images images() { return Images(counts->dimensions(), 2); }
  Contributors At(int64_t image, bool by_weight) {
    const Dims dims = ids->dimensions();
    const int64_t most = dims.back(), pixel = image * dims[dims.size() - 3] * dims[dims.size() - 2];
    const int64_t splat = image * splat_weights->dimensions().back();
    return {most,
            by_weight,
            counts->typed_data() + pixel,
            ids->typed_data() + pixel * most,
            alphas->typed_data() + pixel * most,
            transmittances->typed_data() + pixel * most,
            splat_weights->typed_data() + splat,
            splat_counts->typed_data() + splat};
  }
};

}  // namespace jaxsplat

#define JAXSPLAT_CONTRIBUTORS() \
  Ret<jaxsplat::S32>()          \
      .Ret<jaxsplat::S32>()     \
      .Ret<jaxsplat::F32>()     \
      .Ret<jaxsplat::F32>()     \
      .Ret<jaxsplat::F32>()     \
      .Ret<jaxsplat::S32>()     \
      .JAXSPLAT_BLEND()         \
      .JAXSPLAT_LISTS()         \
      .Attr<bool>("by_weight")

#endif  // JAXSPLAT_FFI_CONTRIBUTORS_H_
