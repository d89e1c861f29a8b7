// XLA calls of the structural similarity.
#include "ops/ssim.h"

#include <algorithm>

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "ffi/images.h"
#include "ffi/operands.h"

namespace jaxsplat {
namespace {

// Calls f(image, pictures, block) for all blocks in parallel.
template <class F>
void ForBlocks(ffi::ThreadPool threads, F32 x, F32 y, F32 window, Dims result, double c1, double c2, const F& f) {
  constexpr int64_t kRows = 64, kValues = 384, kMostChunks = 256;
  const Images images(result, 3);
  const Operand<float> xs("x", x.typed_data(), x.dimensions(), 3, images);
  const Operand<float> ys("y", y.typed_data(), y.dimensions(), 3, images);
  const int64_t height = xs.dim(0), width = xs.dim(1), channels = xs.dim(2);
  ys.Expect({height, width, channels});
  const auto taps = static_cast<int64_t>(window.element_count());
  if (taps % 2 == 0) throw std::invalid_argument("window: an odd size is needed");
  // Both neighbours of a block are computed with it, so it is no narrower than they.
  const int64_t grain = std::max(kValues, 2 * taps * channels);
  const Chunks rows(height, kRows, kMostChunks), values(width * channels, grain, kMostChunks);
  const int64_t blocks = rows.count * values.count;
  XlaPool pool(threads);
  ParallelFor(&pool, images.count() * blocks, [&](int64_t task) {
    const int64_t image = task / blocks, row = task % blocks / values.count, value = task % values.count;
    const SsimImages pictures{
        xs.At(image),           ys.At(image),          height, width, channels, window.typed_data(), taps / 2,
        static_cast<float>(c1), static_cast<float>(c2)};
    f(image, pictures, SsimBlock{rows.begin(row), rows.end(row), values.begin(value), values.end(value)});
  });
}

ffi::Error Map(ffi::ThreadPool threads, F32 x, F32 y, F32 window, ffi::Result<F32> map, double c1, double c2) {
  return Guard([&] {
    ForBlocks(threads, x, y, window, map->dimensions(), c1, c2,
              [&](int64_t image, const SsimImages& s, const SsimBlock& block) {
                BestKernels().ssim(s, block, map->typed_data() + image * s.height * s.width * s.channels);
              });
  });
}

ffi::Error Gradient(ffi::ThreadPool threads, F32 x, F32 y, F32 window, F32 weights, ffi::Result<F32> map,
                    ffi::Result<F32> v_x, double c1, double c2) {
  return Guard([&] {
    const Images images(map->dimensions(), 3);
    const Operand<float> ws("weights", weights.typed_data(), weights.dimensions(), 3, images);
    ForBlocks(threads, x, y, window, map->dimensions(), c1, c2,
              [&](int64_t image, const SsimImages& s, const SsimBlock& block) {
                const int64_t size = s.height * s.row_size();
                if (ws.size() != 1) ws.Expect({s.height, s.width, s.channels});
                BestKernels().ssim_gradient(s, {ws.At(image), ws.size() == 1}, block, map->typed_data() + image * size,
                                            v_x->typed_data() + image * size);
              });
  });
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
namespace ffi = xla::ffi;

JAXSPLAT_HANDLER(
    jaxsplat_ssim, jaxsplat::Map,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<F32>().Arg<F32>().Arg<F32>().Ret<F32>().Attr<double>("c1").Attr<double>(
        "c2"));
JAXSPLAT_HANDLER(jaxsplat_ssim_gradient, jaxsplat::Gradient,
                 ffi::Ffi::Bind()
                     .Ctx<ffi::ThreadPool>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Arg<F32>()
                     .Ret<F32>()
                     .Ret<F32>()
                     .Attr<double>("c1")
                     .Attr<double>("c2"));
