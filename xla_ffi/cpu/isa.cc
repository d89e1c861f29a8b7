// Chooses the kernels for the processor that the module runs on.
#include <cstdlib>
#include <cstring>

#include "cpu/kernels.h"

namespace jaxsplat {

#define JAXSPLAT_DECLARE(isa)    \
  namespace isa {                \
  extern const Kernels kKernels; \
  }
JAXSPLAT_DECLARE(baseline)
#if defined(__x86_64__)
JAXSPLAT_DECLARE(avx2)
JAXSPLAT_DECLARE(avx512)
#endif
#undef JAXSPLAT_DECLARE

namespace {

const Kernels& Choose() {
  const char* wanted = std::getenv("JAXSPLAT_ISA");
  const auto allowed = [&](const Kernels& kernels) {
    return wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, kernels.name) == 0;
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (has_avx512 && allowed(avx512::kKernels)) return avx512::kKernels;
  if (has_avx2 && allowed(avx2::kKernels)) return avx2::kKernels;
#endif
  return baseline::kKernels;
}

}  // namespace

const Kernels& BestKernels() {
  static const Kernels& best = Choose();
  return best;
}

}  // namespace jaxsplat
