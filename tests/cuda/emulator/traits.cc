// Asks a handler for its traits, as XLA does.
#include "xla/ffi/api/c_api.h"

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
