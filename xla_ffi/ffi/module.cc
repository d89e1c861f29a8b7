// What Python reads from the module before it registers anything.
#include "core/constants.h"
#include "xla/ffi/api/c_api.h"
#if !defined(JAXSPLAT_CUDA)
#include "cpu/kernels.h"
#endif

#define JAXSPLAT_EXPORT extern "C" __attribute__((visibility("default")))

// A module built against a newer interface than the running one would keep JAX's back end from starting.
JAXSPLAT_EXPORT int jaxsplat_ffi_api_version() { return XLA_FFI_API_MAJOR * 1000 + XLA_FFI_API_MINOR; }

JAXSPLAT_EXPORT int jaxsplat_max_tile_size() { return jaxsplat::kMaxTileSize; }
JAXSPLAT_EXPORT int jaxsplat_block_side() { return jaxsplat::kBlockSide; }
#if !defined(JAXSPLAT_CUDA)
JAXSPLAT_EXPORT const char* jaxsplat_isa() { return jaxsplat::BestKernels().name; }
#endif
