// What a call of XLA brings: each operand, result and attribute is declared once, with its name, type and shape.
#ifndef JAXSPLAT_FFI_CALL_H_
#define JAXSPLAT_FFI_CALL_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "ffi/executor.h"
#include "ffi/operands.h"

namespace jaxsplat {

// Of a shape: any size.
inline constexpr int64_t kAny = -1;

// Hands out operands and results in the order in which Python passes them, and attributes by name.
class Call {
 public:
  Call(ffi::RemainingArgs operands, ffi::RemainingRets results, ffi::Dictionary attributes)
      : operands_(operands), results_(results), attributes_(attributes) {}
  Call(const Call&) = delete;

  template <class T>
  BufferOf<T> NextOperand(const char* name) {
    return Get(name, operands_.get<BufferOf<T>>(operands_taken_++));
  }
  template <class T>
  BufferOf<T> NextResult(const char* name) {
    ffi::Result<BufferOf<T>> result = Get(name, results_.get<BufferOf<T>>(results_taken_++));
    return *result;
  }
  template <class T>
  T Attribute(const char* name) {
    ++attributes_taken_;
    return Get(name, attributes_.get<T>(name));
  }

  // The leading axes, one image per element: those of the first result.
  const Images& images() const { return images_.value(); }
  void LeadWith(Dims dims, size_t trailing) {
    if (!images_) images_.emplace(dims, trailing);
  }

  // Throws unless all was taken.
  void Finish() const {
    if (operands_taken_ != operands_.size()) throw std::invalid_argument("wrong number of operands");
    if (results_taken_ != results_.size()) throw std::invalid_argument("wrong number of results");
    if (attributes_taken_ != attributes_.size()) throw std::invalid_argument("wrong number of attributes");
  }

 private:
  template <class T>
  static T Get(const char* name, const ffi::ErrorOr<T>& value) {
    if (!value.has_value()) throw std::invalid_argument(std::string(name) + ": " + value.error().message());
    return *value;
  }

  ffi::RemainingArgs operands_;
  ffi::RemainingRets results_;
  ffi::Dictionary attributes_;
  size_t operands_taken_ = 0, results_taken_ = 0, attributes_taken_ = 0;
  std::optional<Images> images_;
};

// The next operand, [leading axes, shape].
template <class T>
struct In : Operand<T> {
  In(Call& call, const char* name, std::initializer_list<int64_t> shape)
      : In(name, call.NextOperand<T>(name), shape, call.images()) {}

 private:
  In(const char* name, const BufferOf<T>& buffer, std::initializer_list<int64_t> shape, const Images& images)
      : Operand<T>(name, buffer.typed_data(), buffer.dimensions(), shape.size(), images) {
    size_t axis = 0;
    for (int64_t size : shape) {
      if (size != kAny && size != this->dim(axis)) throw std::invalid_argument(std::string(name) + ": wrong shape");
      ++axis;
    }
  }
};

// The next result, [leading axes, so many axes of its own].
template <class T>
class Out {
 public:
  Out(Call& call, const char* name, size_t trailing) {
    const BufferOf<T> buffer = call.NextResult<T>(name);
    const Dims dims = buffer.dimensions();
    if (dims.size() < trailing) throw std::invalid_argument(std::string(name) + ": wrong rank");
    call.LeadWith(dims, trailing);
    data_ = buffer.typed_data();
    given_ = buffer.element_count() > 0;
    dims_.assign(dims.end() - static_cast<std::ptrdiff_t>(trailing), dims.end());
    for (int64_t d : dims_) size_ *= d;
  }

  // First element of one image.
  T* At(int64_t image) const { return data_ + image * size_; }
  // The same, null where the result is empty.
  T* IfGiven(int64_t image) const { return given_ ? At(image) : nullptr; }
  // Elements of one image, and the sizes of its axes.
  int64_t size() const { return size_; }
  int64_t dim(size_t k) const { return dims_[k]; }

 private:
  T* data_;
  bool given_;
  int64_t size_ = 1;
  std::vector<int64_t> dims_;
};

// Runs a call: Op takes and checks what the call brings when it is made, and computes in Run.
template <class Op>
ffi::Error Handle(Executor executor, ffi::RemainingArgs operands, ffi::RemainingRets results,
                  ffi::Dictionary attributes) {
  return Guard([&] {
    Call call(operands, results, attributes);
    const Op op{call};
    call.Finish();
    op.Run(executor);
  });
}

// The last result of calls that may be recorded: memory for lists of a fixed capacity, empty where there is none.
class Workspace {
 public:
  explicit Workspace(Call& call) : buffer_(call.NextResult<uint8_t>("workspace")) {}
  void Enter(Executor& executor) const { UseOnly(executor, buffer_); }

 private:
  Bytes buffer_;
};

}  // namespace jaxsplat

#define JAXSPLAT_BINDING() xla::ffi::Ffi::Bind().Ctx<jaxsplat::Executor>().RemainingArgs().RemainingRets().Attrs()

#define JAXSPLAT_OP(name, Op) JAXSPLAT_HANDLER(name, jaxsplat::Handle<jaxsplat::Op>, JAXSPLAT_BINDING())

// The same twice: also for lists of a fixed capacity, which XLA may record as part of a CUDA graph.
#define JAXSPLAT_OPS(name, Op)                                                        \
  JAXSPLAT_OP(name, Op);                                                              \
  JAXSPLAT_HANDLER(name##_static, jaxsplat::Handle<jaxsplat::Op>, JAXSPLAT_BINDING(), \
                   {xla::ffi::Traits::kCmdBufferCompatible})

#endif  // JAXSPLAT_FFI_CALL_H_
