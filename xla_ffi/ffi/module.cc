// What Python reads from the module before it registers anything.
#include "core/constants.h"
#include "xla/ffi/api/c_api.h"
#if !defined(JAXSPLAT_CUDA)
#include "cpu/kernels.h"
#include "cuda/sizes.h"
#endif

#define JAXSPLAT_EXPORT extern "C" __attribute__((visibility("default")))

// A module built against a newer interface than the running one would keep JAX's back end from starting.
JAXSPLAT_EXPORT int jaxsplat_ffi_api_version() { return XLA_FFI_API_MAJOR * 1000 + XLA_FFI_API_MINOR; }

JAXSPLAT_EXPORT int jaxsplat_max_tile_size() { return jaxsplat::kMaxTileSize; }
JAXSPLAT_EXPORT int jaxsplat_block_side() { return jaxsplat::kBlockSide; }
#if !defined(JAXSPLAT_CUDA)
JAXSPLAT_EXPORT const char* jaxsplat_isa() { return jaxsplat::BestKernels().name; }

// Bytes that a CUDA device takes for tile lists of a fixed capacity.
JAXSPLAT_EXPORT int64_t jaxsplat_workspace_bytes(int64_t images, int64_t size, int64_t channels, int64_t width,
                                                 int64_t height, int64_t tile_size, int64_t capacity, int64_t backward,
                                                 int64_t rays) {
  return jaxsplat::cuda::WorkspaceBytes({width, height, tile_size}, images, size, capacity, backward != 0, rays != 0,
                                        channels);
}
#endif
