// Decoding shared by the handlers: operands with leading axes that broadcast, and errors that XLA can carry.
#ifndef JAXSPLAT_FFI_OPERANDS_H_
#define JAXSPLAT_FFI_OPERANDS_H_

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace jaxsplat {

namespace ffi = xla::ffi;

template <class T>
struct DataTypeOf;
template <>
struct DataTypeOf<float> : std::integral_constant<ffi::DataType, ffi::F32> {};
template <>
struct DataTypeOf<int32_t> : std::integral_constant<ffi::DataType, ffi::S32> {};
template <>
struct DataTypeOf<bool> : std::integral_constant<ffi::DataType, ffi::PRED> {};
template <>
struct DataTypeOf<uint8_t> : std::integral_constant<ffi::DataType, ffi::U8> {};
template <class T>
using BufferOf = ffi::Buffer<DataTypeOf<T>::value>;

using F32 = BufferOf<float>;
using S32 = BufferOf<int32_t>;
using Flags = BufferOf<bool>;
using F32Result = ffi::Result<F32>;
using S32Result = ffi::Result<S32>;
using Bytes = BufferOf<uint8_t>;
using Dims = ffi::Span<const int64_t>;

// The leading axes of the results: one image per element.
class Images {
 public:
  Images(Dims dims, size_t trailing) : dims_(dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(trailing)) {}

  int64_t count() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }
  const std::vector<int64_t>& dims() const { return dims_; }

 private:
  std::vector<int64_t> dims_;
};

// An operand of shape [leading axes, trailing axes], where each leading axis is that of the images or 1 (shared).
template <class T>
class Operand {
 public:
  Operand(const char* name, const T* data, Dims dims, size_t trailing, const Images& images)
      : name_(name), data_(data) {
    if (dims.size() != images.dims().size() + trailing) throw std::invalid_argument(std::string(name) + ": wrong rank");
    int64_t stride = 1;
    for (size_t k = dims.size() - trailing; k < dims.size(); ++k) stride *= dims[k];
    size_ = stride;
    strides_.resize(images.dims().size());
    for (size_t k = strides_.size(); k-- > 0;) {
      if (dims[k] != images.dims()[k] && dims[k] != 1) {
        throw std::invalid_argument(std::string(name) + ": leading axes do not broadcast");
      }
      strides_[k] = dims[k] == 1 ? 0 : stride;
      stride *= dims[k];
    }
    for (size_t k = dims.size() - trailing; k < dims.size(); ++k) trailing_.push_back(dims[k]);
    image_dims_ = images.dims();
  }

  // First element of one image.
  const T* At(int64_t image) const {
    int64_t offset = 0;
    for (size_t k = strides_.size(); k-- > 0;) {
      offset += image % image_dims_[k] * strides_[k];
      image /= image_dims_[k];
    }
    return data_ + offset;
  }
  int64_t size() const { return size_; }
  int64_t stride(size_t axis) const { return strides_[axis]; }
  int64_t dim(size_t k) const { return trailing_[k]; }
  const std::vector<int64_t>& image_dims() const { return image_dims_; }
  void Expect(std::initializer_list<int64_t> dims) const {
    if (trailing_ != std::vector<int64_t>(dims)) throw std::invalid_argument(std::string(name_) + ": wrong shape");
  }

 private:
  const char* name_;
  const T* data_;
  int64_t size_;
  std::vector<int64_t> strides_, image_dims_, trailing_;
};

// Runs f and turns exceptions into errors of XLA.
template <class F>
ffi::Error Guard(const F& f) {
  try {
    f();
    return ffi::Error::Success();
  } catch (const std::bad_alloc&) {
    return ffi::Error(ffi::ErrorCode::kResourceExhausted,
                      "jaxsplat: out of memory; render fewer or smaller images at a time");
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(std::string("jaxsplat: ") + error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("jaxsplat: ") + error.what());
  }
}

}  // namespace jaxsplat

// Handlers are the only symbols that the module exports.
#define JAXSPLAT_HANDLER(name, ...)                                                          \
  extern "C" __attribute__((visibility("default"))) XLA_FFI_Error* name(XLA_FFI_CallFrame*); \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, __VA_ARGS__)

#endif  // JAXSPLAT_FFI_OPERANDS_H_
