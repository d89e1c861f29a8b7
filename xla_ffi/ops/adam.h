// Arguments of one step of Adam over an array.
#ifndef JAXSPLAT_OPS_ADAM_H_
#define JAXSPLAT_OPS_ADAM_H_

#include <cstdint>

namespace jaxsplat {

// Kingma and Ba, "Adam", 2015. correction1 and correction2 are 1 - beta^t, the corrections of the bias.
struct AdamRule {
  float rate, correction1, correction2, beta1, beta2, epsilon;
};

// All but the gradient are changed in place.
struct AdamArrays {
  float *values, *first, *second;
  const float* gradient;
};

}  // namespace jaxsplat

#endif  // JAXSPLAT_OPS_ADAM_H_
