// Sums of spherical harmonics and their gradient: the functions for a vector of splats, then splat by splat, whose
// coefficients are contiguous. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/simd.h"
#include "math/spherical_harmonics.h"
#include "ops/spherical_harmonics.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

inline constexpr int kMostHarmonics = kHarmonicsPowers * kHarmonicsPowers;

// Values of the functions, times their factors, for a vector of splats: [functions, lanes].
template <int kDegree>
JAXSPLAT_INLINE void WeighHarmonics(const Harmonics& h, const Direction<Vec>& d, float* weights) {
  Vec values[kMostHarmonics];
  EvaluateHarmonics<kDegree>(h.polynomials, d.x, d.y, d.z, values);
  for (int k = 0; k < (kDegree + 1) * (kDegree + 1); ++k) (values[k] * Vec(h.factors[k])).Store(weights + k * kLanes);
}

// Calls f(k, term) for the used coefficients of one splat, and g(term) for the others. `first` and `rest` are its rows.
template <class T, class F, class G>
JAXSPLAT_INLINE void ForTerms(const Harmonics& h, int64_t used, T* first, T* rest, const F& f, const G& g) {
  const int64_t d = h.channels, split = std::min(h.first_terms, used), all = h.first_terms + h.rest_terms;
  for (int64_t k = 0; k < split; ++k) f(k, first + k * d);
  for (int64_t k = split; k < used; ++k) f(k, rest + (k - h.first_terms) * d);
  for (int64_t k = used; k < all; ++k) g(k < h.first_terms ? first + k * d : rest + (k - h.first_terms) * d);
}

// Calls f(camera, first splat, number of splats, their directions) for vectors of splats, all cameras of one in turn.
template <class F>
JAXSPLAT_INLINE void ForDirections(const Harmonics& h, int64_t begin, int64_t end, const F& f) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, end - i);
    for (int64_t camera = 0; camera < h.cameras; ++camera) {
      const int64_t at = camera * h.splats + i;
      f(camera, i, n, Direction<Vec>{LoadPart(h.x + at, n), LoadPart(h.y + at, n), LoadPart(h.z + at, n)});
    }
  }
}

// kD is the number of channels, or 0: any.
template <int kDegree, int kD>
void HarmonicsForwardD(const Harmonics& h, int64_t begin, int64_t end, float* values) {
  constexpr int64_t kUsed = (kDegree + 1) * (kDegree + 1);
  const int64_t channels = kD > 0 ? kD : h.channels;
  ForDirections(h, begin, end, [&](int64_t camera, int64_t i, int64_t n, const Direction<Vec>& direction) {
    alignas(64) float weights[kUsed * kLanes];
    WeighHarmonics<kDegree>(h, direction, weights);
    for (int64_t lane = 0; lane < n; ++lane) {
      const int64_t splat = i + lane, at = camera * h.splats + splat;
      float* out = values + at * channels;
      float few[kD > 0 ? kD : 1] = {};
      float* sums = kD > 0 ? few : out;
      std::memset(out, 0, sizeof(float) * static_cast<size_t>(channels));
      if (h.masks != nullptr && !h.masks[at]) continue;
      const auto add = [&](int64_t k, const float* term) {
        const float weight = weights[k * kLanes + lane];
        for (int64_t c = 0; c < channels; ++c) sums[c] += weight * term[c];
      };
      ForTerms(h, kUsed, h.first + splat * h.first_terms * channels, h.rest + splat * h.rest_terms * channels, add,
               [](const float*) {});
      if (kD > 0) std::memcpy(out, few, sizeof(few));
    }
  });
}

template <int kDegree, int kD>
void HarmonicsBackwardD(const Harmonics& h, const float* v_values, int64_t begin, int64_t end,
                        const HarmonicsGradient& gradient) {
  constexpr int64_t kUsed = (kDegree + 1) * (kDegree + 1);
  const int64_t channels = kD > 0 ? kD : h.channels;
  ForDirections(h, begin, end, [&](int64_t camera, int64_t i, int64_t n, const Direction<Vec>& direction) {
    alignas(64) float weights[kUsed * kLanes];
    alignas(64) float v_weights[kUsed * kLanes] = {};
    WeighHarmonics<kDegree>(h, direction, weights);
    for (int64_t lane = 0; lane < n; ++lane) {
      const int64_t splat = i + lane, at = camera * h.splats + splat;
      const int64_t first_row = splat * h.first_terms * channels, rest_row = splat * h.rest_terms * channels;
      const bool visible = h.masks == nullptr || h.masks[at];
      const auto clear = [&](float* v_term) {
        if (camera == 0) std::memset(v_term, 0, sizeof(float) * static_cast<size_t>(channels));
      };
      float* const v_first = gradient.first + first_row;
      float* const v_rest = gradient.rest + rest_row;
      if (!visible) {
        ForTerms(h, 0, v_first, v_rest, [](int64_t, float*) {}, clear);
        continue;
      }
      const float* const v = v_values + at * channels;
      const auto dot = [&](int64_t k, const float* term) {
        float sum = 0;
        for (int64_t c = 0; c < channels; ++c) sum += term[c] * v[c];
        v_weights[k * kLanes + lane] = sum;
      };
      ForTerms(h, kUsed, h.first + first_row, h.rest + rest_row, dot, [](const float*) {});
      const auto spread = [&](int64_t k, float* v_term) {
        const float weight = weights[k * kLanes + lane];
        for (int64_t c = 0; c < channels; ++c) v_term[c] = weight * v[c] + (camera == 0 ? 0.0f : v_term[c]);
      };
      ForTerms(h, kUsed, v_first, v_rest, spread, clear);
    }
    Vec v[kMostHarmonics];
    for (int64_t k = 0; k < kUsed; ++k) v[k] = Vec::Load(v_weights + k * kLanes) * Vec(h.factors[k]);
    const Direction<Vec> v_direction =
        HarmonicsDirection<kDegree>(h.polynomials, direction.x, direction.y, direction.z, v);
    const int64_t at = camera * h.splats + i;
    StorePart(v_direction.x, gradient.x + at, n);
    StorePart(v_direction.y, gradient.y + at, n);
    StorePart(v_direction.z, gradient.z + at, n);
  });
}

// Calls f with the degree as a constant.
template <class F>
void WithDegree(int64_t degree, const F& f) {
  switch (degree) {
    case 0:
      return f(std::integral_constant<int, 0>());
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    default:
      return f(std::integral_constant<int, 4>());
  }
}

void HarmonicsForward(const Harmonics& h, int64_t begin, int64_t end, float* values) {
  WithDegree(h.degree, [&](auto degree) {
    h.channels == 3 ? HarmonicsForwardD<degree.value, 3>(h, begin, end, values)
                    : HarmonicsForwardD<degree.value, 0>(h, begin, end, values);
  });
}

void HarmonicsBackward(const Harmonics& h, const float* v_values, int64_t begin, int64_t end,
                       const HarmonicsGradient& gradient) {
  WithDegree(h.degree, [&](auto degree) {
    h.channels == 3 ? HarmonicsBackwardD<degree.value, 3>(h, v_values, begin, end, gradient)
                    : HarmonicsBackwardD<degree.value, 0>(h, v_values, begin, end, gradient);
  });
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
