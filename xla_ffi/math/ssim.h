// Structural similarity at one pixel from the local moments of two pictures, and its derivatives.
#ifndef JAXSPLAT_MATH_SSIM_H_
#define JAXSPLAT_MATH_SSIM_H_

namespace jaxsplat {

// Window averages of x, y, x x + y y and x y.
template <class T>
struct SsimMoments {
  T x, y, squares, products;
};

template <class T>
struct SsimTerms {
  T a1, a2, b1, b2, inverse;  // the similarity is a1 a2 / (b1 b2)
};

template <class T>
inline SsimTerms<T> TermsOf(const SsimMoments<T>& m, const T& c1, const T& c2) {
  // Not fused: for equal pictures, a1 and b1 are then equal, and a2 and b2.
  const T two(2.0f), product = m.x * m.y, squares = m.x * m.x + m.y * m.y;
  SsimTerms<T> t;
  t.a1 = Fma(two, product, c1);
  t.a2 = Fma(two, m.products - product, c2);
  t.b1 = squares + c1;
  t.b2 = (m.squares - squares) + c2;
  t.inverse = T(1.0f) / (t.b1 * t.b2);
  return t;
}

template <class T>
inline T Similarity(const SsimTerms<T>& t) {
  return t.a1 * t.a2 * t.inverse;
}

// Gradients with respect to the window averages of x, x x and x y; those two as they are needed, 2 v_xx and v_xy.
template <class T>
struct SsimMomentGradient {
  T x, two_xx, xy;
};

template <class T>
inline SsimMomentGradient<T> MomentGradient(const SsimMoments<T>& m, const SsimTerms<T>& t, const T& v) {
  const T scaled = T(2.0f) * v * t.inverse, similarity = Similarity(t);
  SsimMomentGradient<T> g;
  g.xy = scaled * t.a1;
  g.two_xx = T(0.0f) - scaled * similarity * t.b1;
  // Of the averages themselves, and through the variance and the covariance.
  const T direct = scaled * Fnma(m.x * similarity, t.b2, m.y * t.a2);
  g.x = Fnma(g.two_xx, m.x, Fnma(g.xy, m.y, direct));
  return g;
}

}  // namespace jaxsplat

#endif  // JAXSPLAT_MATH_SSIM_H_
