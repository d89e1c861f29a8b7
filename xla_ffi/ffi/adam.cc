// XLA call of one step of Adam.
#include "ops/adam.h"

#include <algorithm>
#include <utility>

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "ffi/images.h"
#include "ffi/operands.h"

namespace jaxsplat {
namespace {

// Calls run(rule, arrays, pool) with what the operands hold. rule holds the rate and the two corrections.
template <class F>
ffi::Error WithAdam(ffi::ThreadPool threads, F32 values, F32 first, F32 second, F32 gradient, F32 rule,
                    ffi::Result<F32> new_values, ffi::Result<F32> new_first, ffi::Result<F32> new_second, double beta1,
                    double beta2, double epsilon, const F& run) {
  return Guard([&] {
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
    run(settings, arrays, &pool);
  });
}

constexpr int64_t kGrain = 1 << 14, kMostChunks = 256;

ffi::Error Adam(ffi::ThreadPool threads, F32 values, F32 first, F32 second, F32 gradient, F32 rule,
                ffi::Result<F32> new_values, ffi::Result<F32> new_first, ffi::Result<F32> new_second, double beta1,
                double beta2, double epsilon) {
  const auto size = static_cast<int64_t>(values.element_count());
  return WithAdam(threads, values, first, second, gradient, rule, new_values, new_first, new_second, beta1, beta2,
                  epsilon, [&](const AdamRule& settings, const AdamArrays& arrays, XlaPool* pool) {
                    const Chunks chunks(size, kGrain, kMostChunks);
                    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
                      BestKernels().adam(settings, arrays, chunks.begin(chunk), chunks.end(chunk));
                    });
                  });
}

// Where the results do not lie where the operands do, the elements [begin, end) are carried over.
void Keep(const AdamArrays& a, int64_t begin, int64_t end) {
  const std::pair<const float*, float*> pairs[] = {
      {a.values, a.new_values}, {a.first, a.new_first}, {a.second, a.new_second}};
  for (const auto& [from, to] : pairs) {
    if (from != to) std::copy(from + begin, from + end, to + begin);
  }
}

// As Adam, but of the elements of the first axis only those change that `rows` marks.
ffi::Error AdamRows(ffi::ThreadPool threads, F32 values, F32 first, F32 second, F32 gradient, F32 rule,
                    ffi::Buffer<ffi::PRED> rows, ffi::Result<F32> new_values, ffi::Result<F32> new_first,
                    ffi::Result<F32> new_second, double beta1, double beta2, double epsilon) {
  const auto size = static_cast<int64_t>(values.element_count());
  const auto count = static_cast<int64_t>(rows.element_count());
  return WithAdam(threads, values, first, second, gradient, rule, new_values, new_first, new_second, beta1, beta2,
                  epsilon, [&](const AdamRule& settings, const AdamArrays& arrays, XlaPool* pool) {
                    if (count == 0) return;
                    if (size % count != 0) throw std::invalid_argument("adam: rows do not fit the values");
                    const bool* marked = rows.typed_data();
                    const int64_t width = size / count;
                    const Chunks chunks(count, std::max<int64_t>(kGrain / std::max<int64_t>(width, 1), 1), kMostChunks);
                    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
                      const int64_t last = chunks.end(chunk);
                      for (int64_t begin = chunks.begin(chunk), end; begin < last; begin = end) {
                        // A run of rows with the same mark, so that vectors are full.
                        for (end = begin + 1; end < last && marked[end] == marked[begin];) ++end;
                        if (marked[begin]) {
                          BestKernels().adam(settings, arrays, begin * width, end * width);
                        } else {
                          Keep(arrays, begin * width, end * width);
                        }
                      }
                    });
                  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
namespace ffi = xla::ffi;

#define JAXSPLAT_ADAM_OPERANDS \
  ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Arg<F32>().Arg<F32>().Arg<F32>().Arg<F32>()
#define JAXSPLAT_ADAM_RESULTS \
  Ret<F32>().Ret<F32>().Ret<F32>().Attr<double>("beta1").Attr<double>("beta2").Attr<double>("epsilon")

JAXSPLAT_HANDLER(jaxsplat_adam, jaxsplat::Adam, JAXSPLAT_ADAM_OPERANDS.JAXSPLAT_ADAM_RESULTS);
JAXSPLAT_HANDLER(jaxsplat_adam_rows, jaxsplat::AdamRows,
                 JAXSPLAT_ADAM_OPERANDS.Arg<ffi::Buffer<ffi::PRED>>().JAXSPLAT_ADAM_RESULTS);
