// XLA call of one step of Adam.
#include "ops/adam.h"

#include <algorithm>
#include <stdexcept>

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
    // The calls say that results lie where the operands do.
    if (size > 0 && (new_values->typed_data() != values.typed_data() || new_first->typed_data() != first.typed_data() ||
                     new_second->typed_data() != second.typed_data())) {
      throw std::invalid_argument("adam: the results must lie where the operands do");
    }
    const AdamArrays arrays{new_values->typed_data(), new_first->typed_data(), new_second->typed_data(),
                            gradient.typed_data()};
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
                      BestKernels().adam(settings, arrays, chunks.begin(chunk), chunks.end(chunk), nullptr);
                    });
                  });
}

// Rows that are looked at together, and the largest width of rows that share vectors though only some are marked.
constexpr int64_t kRows = 64, kNarrow = 4;

// As the kernel, for rows [begin, end), at most kRows, of `width` elements; only the marked ones change.
void AdamMarked(const AdamRule& rule, const AdamArrays& a, const bool* marked, int64_t width, int64_t begin,
                int64_t end) {
  const auto adam = BestKernels().adam;
  const auto count = std::count(marked + begin, marked + end, true);
  if (count == 0) return;
  if (count == end - begin) return adam(rule, a, begin * width, end * width, nullptr);
  if (width <= kNarrow) {
    // Of a constant length, which is faster: the next row begins before, and nothing is read beyond the last.
    float changed[kRows * kNarrow];
    for (int64_t row = begin; row < end; ++row) {
      std::fill_n(changed + (row - begin) * width, kNarrow, marked[row] ? 1.0f : 0.0f);
    }
    return adam(rule, a, begin * width, end * width, changed);
  }
  for (int64_t row = begin; row < end; ++row) {
    if (marked[row]) adam(rule, a, row * width, (row + 1) * width, nullptr);
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
                    const int64_t width = size / count;
                    const Chunks chunks(count, std::max<int64_t>(kGrain / std::max<int64_t>(width, 1), 1), kMostChunks);
                    ParallelFor(pool, chunks.count, [&](int64_t chunk) {
                      const int64_t last = chunks.end(chunk);
                      for (int64_t begin = chunks.begin(chunk); begin < last; begin += kRows) {
                        AdamMarked(settings, arrays, rows.typed_data(), width, begin, std::min(begin + kRows, last));
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
