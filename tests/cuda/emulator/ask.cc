// Asks handlers and launches what Python cannot.
#include <exception>

#include "cuda/launch.h"
#include "xla/ffi/api/c_api.h"

// As XLA asks.

extern "C" __attribute__((visibility("default"))) unsigned emulator_traits(XLA_FFI_Handler* handler) {
  XLA_FFI_Metadata metadata{};
  metadata.struct_size = XLA_FFI_Metadata_STRUCT_SIZE;
  XLA_FFI_Metadata_Extension extension{};
  extension.extension_base.struct_size = XLA_FFI_Metadata_Extension_STRUCT_SIZE;
  extension.extension_base.type = XLA_FFI_Extension_Metadata;
  extension.metadata = &metadata;
  XLA_FFI_CallFrame frame{};
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.extension_start = &extension.extension_base;
  const bool failed = handler(&frame) != nullptr;
  return failed || metadata.api_version.minor_version != XLA_FFI_API_MINOR ? ~0u : metadata.traits;
}

// What is said of a kernel with so many blocks of threads, or nothing.
extern "C" __attribute__((visibility("default"))) const char* emulator_launch_error(long blocks) {
  static std::string said;
  try {
    jaxsplat::cuda::Launch(+[] {}, blocks, 32, nullptr);
    said.clear();
  } catch (const std::exception& error) {
    said = error.what();
  }
  return said.c_str();
}
