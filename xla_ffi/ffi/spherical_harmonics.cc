// XLA calls of sums of spherical harmonics.
#include "ops/spherical_harmonics.h"

#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "ffi/images.h"
#include "ffi/operands.h"

namespace jaxsplat {
namespace {

// The operands of both passes, checked. A mask of one element counts for all.
struct Inputs {
  Images scenes;
  Operand<float> x, y, z, first, rest;
  Operand<bool> masks;
  const float *factors, *polynomials;
  int64_t degree;

  Inputs(const Images& leading, const F32& x_, const F32& y_, const F32& z_, const Flags& masks_, const F32& first_,
         const F32& rest_, const F32& factors_, const F32& polynomials_, int64_t degree_)
      : scenes(leading),
        x("x", x_.typed_data(), x_.dimensions(), 2, scenes),
        y("y", y_.typed_data(), y_.dimensions(), 2, scenes),
        z("z", z_.typed_data(), z_.dimensions(), 2, scenes),
        first("first", first_.typed_data(), first_.dimensions(), 3, scenes),
        rest("rest", rest_.typed_data(), rest_.dimensions(), 3, scenes),
        masks("masks", masks_.typed_data(), masks_.dimensions(), 2, scenes),
        factors(factors_.typed_data()),
        polynomials(polynomials_.typed_data()),
        degree(degree_) {
    const int64_t cameras = x.dim(0), splats = x.dim(1), channels = first.dim(2), powers = kHarmonicsPowers;
    y.Expect({cameras, splats});
    z.Expect({cameras, splats});
    first.Expect({splats, first.dim(1), channels});
    rest.Expect({splats, rest.dim(1), channels});
    if (masks.size() != 1) masks.Expect({cameras, splats});
    if (degree < 0 || degree > kMaxHarmonicsDegree) throw std::invalid_argument("degree: from 0 to 4");
    const int64_t used = (degree + 1) * (degree + 1);
    if (first.dim(1) + rest.dim(1) < used) throw std::invalid_argument("coefficients: too few for the degree");
    if (static_cast<int64_t>(factors_.element_count()) < used) throw std::invalid_argument("factors: too few");
    if (static_cast<int64_t>(polynomials_.element_count()) != powers * powers * powers) {
      throw std::invalid_argument("polynomials: wrong shape");
    }
  }

  // Calls f(scene, its arguments, first splat, last splat) in parallel.
  template <class F>
  void ForSplats(ffi::ThreadPool threads, const F& f) const {
    constexpr int64_t kGrain = 2048, kMostChunks = 256;
    const Chunks chunks(x.dim(1), kGrain, kMostChunks);
    XlaPool pool(threads);
    ParallelFor(&pool, scenes.count() * chunks.count, [&](int64_t task) {
      const int64_t scene = task / chunks.count, chunk = task % chunks.count;
      const Harmonics h{
          degree,      x.dim(0),        x.dim(1),       first.dim(2),
          x.At(scene), y.At(scene),     z.At(scene),    masks.size() == 1 && x.size() != 1 ? nullptr : masks.At(scene),
          polynomials, first.At(scene), rest.At(scene), first.dim(1),
          rest.dim(1), factors};
      f(scene, h, chunks.begin(chunk), chunks.end(chunk));
    });
  }
};

ffi::Error Forward(ffi::ThreadPool threads, F32 x, F32 y, F32 z, Flags masks, F32 first, F32 rest, F32 factors,
                   F32 polynomials, F32Result values, int64_t degree) {
  return Guard([&] {
    const Inputs in(Images(values->dimensions(), 3), x, y, z, masks, first, rest, factors, polynomials, degree);
    in.ForSplats(threads, [&](int64_t scene, const Harmonics& h, int64_t begin, int64_t end) {
      BestKernels().harmonics(h, begin, end, values->typed_data() + scene * h.cameras * h.splats * h.channels);
    });
  });
}

ffi::Error Backward(ffi::ThreadPool threads, F32 x, F32 y, F32 z, Flags masks, F32 first, F32 rest, F32 factors,
                    F32 polynomials, F32 v_values, F32Result v_x, F32Result v_y, F32Result v_z, F32Result v_first,
                    F32Result v_rest, int64_t degree) {
  return Guard([&] {
    const Inputs in(Images(v_x->dimensions(), 2), x, y, z, masks, first, rest, factors, polynomials, degree);
    const Operand<float> v("v_values", v_values.typed_data(), v_values.dimensions(), 3, in.scenes);
    v.Expect({in.x.dim(0), in.x.dim(1), in.first.dim(2)});
    in.ForSplats(threads, [&](int64_t scene, const Harmonics& h, int64_t begin, int64_t end) {
      const int64_t rows = scene * in.x.size();
      BestKernels().harmonics_gradient(
          h, v.At(scene), begin, end,
          {v_x->typed_data() + rows, v_y->typed_data() + rows, v_z->typed_data() + rows,
           v_first->typed_data() + scene * in.first.size(), v_rest->typed_data() + scene * in.rest.size()});
    });
  });
}

auto Operands() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<Flags>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>()
      .Arg<F32>();
}

}  // namespace
}  // namespace jaxsplat

using jaxsplat::F32;
namespace ffi = xla::ffi;

JAXSPLAT_HANDLER(jaxsplat_spherical_harmonics, jaxsplat::Forward,
                 jaxsplat::Operands().Ret<F32>().Attr<int64_t>("degree"));
JAXSPLAT_HANDLER(
    jaxsplat_spherical_harmonics_gradient, jaxsplat::Backward,
    jaxsplat::Operands().Arg<F32>().Ret<F32>().Ret<F32>().Ret<F32>().Ret<F32>().Ret<F32>().Attr<int64_t>("degree"));
