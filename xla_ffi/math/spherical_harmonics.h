// Real spherical harmonics of a unit direction and their derivatives: function n^2 + n + m is a polynomial in z for n
// and |m| times the real or imaginary part of (x + i y)^|m|.
#ifndef JAXSPLAT_MATH_SPHERICAL_HARMONICS_H_
#define JAXSPLAT_MATH_SPHERICAL_HARMONICS_H_

#include "ops/spherical_harmonics.h"

namespace jaxsplat {

// An even or odd polynomial of degree `top`, or (kDerivative) its derivative.
template <bool kDerivative, class T>
inline T Polynomial(const float* coefficients, int top, const T& z, const T& squared) {
  const auto coefficient = [&](int i) { return T(coefficients[i] * (kDerivative ? static_cast<float>(i) : 1.0f)); };
  T value = coefficient(top);
  for (int i = top - 2; i >= (kDerivative ? 1 : 0); i -= 2) value = Fma(value, squared, coefficient(i));
  return (top % 2 == 1) != kDerivative ? value * z : value;
}

// (x + i y)^m.
template <int kDegree, class T>
struct Powers {
  T real[kDegree + 1], imaginary[kDegree + 1];

  Powers(const T& x, const T& y) {
    real[0] = T(1.0f);
    imaginary[0] = T(0.0f);
    for (int m = 1; m <= kDegree; ++m) {
      real[m] = Fnma(y, imaginary[m - 1], x * real[m - 1]);
      imaginary[m] = Fma(x, imaginary[m - 1], y * real[m - 1]);
    }
  }
};

// Calls f(n, m, coefficients of the polynomial) for all functions up to a degree.
template <int kDegree, class F>
inline void ForHarmonics(const float* polynomials, const F& f) {
  for (int n = 0; n <= kDegree; ++n) {
    for (int m = 0; m <= n; ++m) f(n, m, polynomials + (n * kHarmonicsPowers + m) * kHarmonicsPowers);
  }
}

template <int kDegree, class T>
inline void EvaluateHarmonics(const float* polynomials, const T& x, const T& y, const T& z, T* values) {
  const Powers<kDegree, T> powers(x, y);
  const T squared = z * z;
  ForHarmonics<kDegree>(polynomials, [&](int n, int m, const float* p) {
    const T height = Polynomial<false>(p, n - m, z, squared);
    values[n * n + n + m] = height * powers.real[m];
    if (m > 0) values[n * n + n - m] = height * powers.imaginary[m];
  });
}

template <class T>
struct Direction {
  T x, y, z;
};

// Gradient of the direction, given that of the values.
template <int kDegree, class T>
inline Direction<T> HarmonicsDirection(const float* polynomials, const T& x, const T& y, const T& z,
                                       const T* v_values) {
  const Powers<kDegree, T> powers(x, y);
  const T squared = z * z;
  Direction<T> v{T(0.0f), T(0.0f), T(0.0f)};
  T v_real[kDegree + 1], v_imaginary[kDegree + 1];
  for (int m = 0; m <= kDegree; ++m) v_real[m] = v_imaginary[m] = T(0.0f);
  ForHarmonics<kDegree>(polynomials, [&](int n, int m, const float* p) {
    const T height = Polynomial<false>(p, n - m, z, squared);
    const T v_cosine = v_values[n * n + n + m];
    T v_height = v_cosine * powers.real[m];
    if (m > 0) {
      const T v_sine = v_values[n * n + n - m];
      v_height = Fma(v_sine, powers.imaginary[m], v_height);
      v_real[m] = Fma(v_cosine, height, v_real[m]);
      v_imaginary[m] = Fma(v_sine, height, v_imaginary[m]);
    }
    if (n > m) v.z = Fma(v_height, Polynomial<true>(p, n - m, z, squared), v.z);
  });
  // The derivative of (x + i y)^m is m (x + i y)^(m - 1) by x, and i times that by y.
  for (int m = 1; m <= kDegree; ++m) {
    const T real = T(static_cast<float>(m)) * powers.real[m - 1];
    const T imaginary = T(static_cast<float>(m)) * powers.imaginary[m - 1];
    v.x = Fma(v_real[m], real, Fma(v_imaginary[m], imaginary, v.x));
    v.y = Fma(v_imaginary[m], real, Fnma(v_real[m], imaginary, v.y));
  }
  return v;
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_SPHERICAL_HARMONICS_H_
