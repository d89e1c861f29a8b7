// What a handler runs on. On a CPU: XLA's threads. On a CUDA device: XLA's stream and XLA's scratch memory.
#ifndef JAXSPLAT_FFI_EXECUTOR_H_
#define JAXSPLAT_FFI_EXECUTOR_H_

#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

#if defined(JAXSPLAT_CUDA)

#include "cuda/batch.h"
#include "cuda/device.h"
#include "ffi/operands.h"

namespace jaxsplat {

#if defined(JAXSPLAT_EMULATED)

// The emulated device: a stream of its own, and its own memory.
class Executor final : public cuda::Device {
 public:
  Executor() : Executor(std::make_unique<EmulatedStream>()) {}
  Executor(Executor&&) = default;
  ~Executor() override {
    if (stream_ != nullptr) cudaStreamSynchronize(stream());
    for (void* data : allocations_) cudaFree(data);
  }
  // As XLA does where it makes a CUDA graph of the call, in memory that holds what looks like small numbers.
  void UseOnly(void* workspace, size_t bytes) {
    for (size_t i = 0; i + sizeof(int) <= bytes; i += sizeof(int)) static_cast<int*>(workspace)[i / sizeof(int)] = 1;
    Device::UseOnly(workspace, bytes);
    emulator::BeginCapture(stream());
  }
  // Throws what went wrong in what was launched.
  void Finish() {
    emulator::Replay(stream());
    cuda::Check(cudaStreamSynchronize(stream()), "kernels");
  }

 private:
  explicit Executor(std::unique_ptr<EmulatedStream> stream) : Device(stream.get()), stream_(std::move(stream)) {}
  void* Allocate(size_t bytes) override {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) != cudaSuccess) throw std::bad_alloc();
    allocations_.push_back(data);
    return data;
  }
  std::unique_ptr<EmulatedStream> stream_;
  std::vector<void*> allocations_;
};

#else

class Executor final : public cuda::Device {
 public:
  Executor(cudaStream_t stream, xla::ffi::ScratchAllocator scratch) : Device(stream), scratch_(std::move(scratch)) {}
  Executor(Executor&&) = default;
  void Finish() { cuda::Check(cudaGetLastError(), "kernels"); }

 private:
  void* Allocate(size_t bytes) override {
    // XLA refuses to align to more, and frees the memory when the handler returns.
    constexpr size_t kAlignment = 16;
    const std::optional<void*> data = scratch_.Allocate(bytes, kAlignment);
    if (!data) throw std::bad_alloc();
    return *data;
  }
  xla::ffi::ScratchAllocator scratch_;
};

#endif

// Makes the device take no memory but the workspace, where there is one.
inline void UseOnly(Executor& executor, const Bytes& workspace) {
  if (workspace.element_count() > 0) executor.UseOnly(workspace.typed_data(), workspace.size_bytes());
}

// The leading axes of the images that have more than one element, innermost first.
inline std::vector<size_t> LongAxes(const std::vector<int64_t>& dims) {
  std::vector<size_t> axes;
  for (size_t k = dims.size(); k-- > 0;) {
    if (dims[k] != 1) axes.push_back(k);
  }
  if (axes.size() > cuda::kMaxAxes) {
    throw std::invalid_argument("more than " + std::to_string(cuda::kMaxAxes) +
                                " leading axes of more than one element; reshape them into fewer");
  }
  return axes;
}

inline cuda::ImageAxes AxesOf(const Images& images) {
  cuda::ImageAxes result;
  const std::vector<size_t> axes = LongAxes(images.dims());
  for (size_t k = 0; k < axes.size(); ++k) result.dims[k] = images.dims()[axes[k]];
  return result;
}

template <class T>
cuda::Batched<T> BatchOf(const Operand<T>& operand) {
  cuda::Batched<T> result;
  result.data = operand.At(0);
  const std::vector<size_t> axes = LongAxes(operand.image_dims());
  for (size_t k = 0; k < axes.size(); ++k) result.strides[k] = operand.stride(axes[k]);
  return result;
}

}  // namespace jaxsplat

template <>
struct xla::ffi::CtxDecoding<jaxsplat::Executor> {
  using Type = jaxsplat::Executor;
  static std::optional<Type> Decode([[maybe_unused]] const XLA_FFI_Api* api,
                                    [[maybe_unused]] XLA_FFI_ExecutionContext* context,
                                    [[maybe_unused]] DiagnosticEngine& diagnostic) {
#if defined(JAXSPLAT_EMULATED)
    return std::optional<Type>(std::in_place);
#else
    const auto stream = CtxDecoding<PlatformStream<cudaStream_t> >::Decode(api, context, diagnostic);
    auto scratch = CtxDecoding<ScratchAllocator>::Decode(api, context, diagnostic);
    if (!stream || !scratch) return std::nullopt;
    return std::optional<Type>(std::in_place, *stream, *std::move(scratch));
#endif
  }
};

#else

#include "ffi/images.h"
#include "ffi/operands.h"

namespace jaxsplat {

using Executor = XlaPool;

// A CPU has memory of its own.
inline void UseOnly(Executor&, const Bytes&) {}

}  // namespace jaxsplat

template <>
struct xla::ffi::CtxDecoding<jaxsplat::Executor> {
  using Type = jaxsplat::Executor;
  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine& diagnostic) {
    const auto pool = CtxDecoding<ThreadPool>::Decode(api, context, diagnostic);
    if (!pool) return std::nullopt;
    return std::optional<Type>(std::in_place, *pool);
  }
};

#endif

#endif  // JAXSPLAT_FFI_EXECUTOR_H_
