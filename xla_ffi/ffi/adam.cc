// XLA call of one step of Adam.
#include "ops/adam.h"

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "ffi/images.h"
#include "ffi/operands.h"

namespace jaxsplat {
namespace {

using F32 = ffi::Buffer<ffi::F32>;

// rule holds the rate and the two corrections.
ffi::Error Adam(ffi::ThreadPool threads, F32 values, F32 first, F32 second, F32 gradient, F32 rule,
                ffi::Result<F32> new_values, ffi::Result<F32> new_first, ffi::Result<F32> new_second, double beta1,
                double beta2, double epsilon) {
  return Guard([&] {
    constexpr int64_t kGrain = 1 << 14, kMostChunks = 256;
    const auto size = static_cast<int64_t>(values.element_count());
    for (const F32& other : {first, second, gradient}) {
      if (static_cast<int64_t>(other.element_count()) != size) throw std::invalid_argument("adam: sizes disagree");
    }
    const float* scalars = rule.typed_data();
    const AdamRule settings{scalars[0],
                            scalars[1],
                            scalars[2],
                            static_cast<float>(beta1),
                            static_cast<float>(beta2),
                            static_cast<float>(epsilon)};
    const AdamArrays arrays{values.typed_data(),     first.typed_data(),       second.typed_data(),
                            gradient.typed_data(),   new_values->typed_data(), new_first->typed_data(),
                            new_second->typed_data()};
    XlaPool pool(threads);
    const Chunks chunks(size, kGrain, kMostChunks);
    ParallelFor(&pool, chunks.count,
                [&](int64_t chunk) { BestKernels().adam(settings, arrays, chunks.begin(chunk), chunks.end(chunk)); });
  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
namespace ffi = xla::ffi;

JAXSPLAT_HANDLER(jaxsplat_adam, jaxsplat::Adam,
                 ffi::Ffi::Bind()
                     .Ctx<ffi::ThreadPool>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Attr<double>("beta1")
                     .Attr<double>("beta2")
                     .Attr<double>("epsilon"));
