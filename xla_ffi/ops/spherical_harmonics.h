// Arguments of sums of spherical harmonics.
#ifndef JAXSPLAT_OPS_SPHERICAL_HARMONICS_H_
#define JAXSPLAT_OPS_SPHERICAL_HARMONICS_H_

#include <cstdint>

namespace jaxsplat {

inline constexpr int kMaxHarmonicsDegree = 4;
inline constexpr int kHarmonicsPowers = kMaxHarmonicsDegree + 1;

// One scene, whose splats all cameras share.
struct Harmonics {
  int64_t degree, cameras, splats, channels;
  const float *x, *y, *z;  // [cameras, splats] unit directions
  const bool* masks;       // [cameras, splats], or null: all
  // Coefficients of the polynomial in z by degree, order and power: [powers, powers, powers].
  const float* polynomials;
  // Coefficients of the splats, in two parts that follow each other: [splats, terms, channels] each, of which the first
  // (degree + 1)^2 are used, times a factor each.
  const float *first, *rest;
  int64_t first_terms, rest_terms;
  const float* factors;
};

// Those of the directions for each camera, those of the coefficients summed over the cameras.
struct HarmonicsGradient {
  float *x, *y, *z, *first, *rest;
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_SPHERICAL_HARMONICS_H_
