// The blend rule, front to back, and its reverse step. A pixel that has ended is moved far away: nothing hits it any
// more.
#ifndef JAXSPLAT_MATH_COMPOSITING_H_
#define JAXSPLAT_MATH_COMPOSITING_H_

#include "core/simd.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat::JAXSPLAT_ISA {

// Finite, so that products with a weight of zero stay zero.
inline constexpr float kFarAway = 1e30f;

inline bool AnyAlive(const Vec& x) { return Any(x < Vec(0.5f * kFarAway)); }

// Constants of the rule, as broadcast by the kernels.
struct Rule {
  float alpha_max, transmittance_min, most;
  bool blend_last;
  explicit Rule(const BlendRule& rule)
      : alpha_max(static_cast<float>(rule.alpha_max)),
        transmittance_min(static_cast<float>(rule.transmittance_min)),
        most(static_cast<float>(rule.max_contributors)),
        blend_last(rule.blend_last) {}
};

struct Step {
  Vec weight;  // what the splat's color is multiplied by: transmittance times alpha, 0 where it is not blended
  Vec next;    // transmittance behind the splat
  bool ended;  // whether pixels may have ended
};

// One splat in front of what is still to come. `hit` loses the pixels that the splat ends without being blended, and
// the pixels that it ends move away. `count` (only looked at if kLimited) is the number of splats blended so far.
template <bool kLimited>
inline Step Composite(const Rule& rule, const Vec& alpha, const Vec& transmittance, Mask* hit, Vec* x, Vec* count) {
  Step step;
  step.weight = Keep(*hit, transmittance * alpha);
  step.next = transmittance - step.weight;
  const Mask ends = *hit & (step.next <= Vec(rule.transmittance_min));
  step.ended = Any(ends);
  if (__builtin_expect(step.ended, 0)) {
    *x = Select(ends, Vec(kFarAway), *x);
    if (!rule.blend_last) {
      *hit = AndNot(*hit, ends);
      step.weight = Keep(*hit, step.weight);
      step.next = transmittance - step.weight;
    }
  }
  if constexpr (kLimited) {
    step.ended = true;
    *count = *count + Keep(*hit, Vec(1.0f));
    *x = Select(Vec(rule.most) <= *count, Vec(kFarAway), *x);
  }
  return step;
}

// dL/dalpha of a blended splat. `behind` is the part of the loss's linear form that lies behind the splat:
// the sum over later splats of weight (color . gradient), and the final transmittance times its gradient.
inline Vec CompositeVjp(const Vec& alpha, const Vec& transmittance, const Vec& color_dot, const Vec& behind) {
  return transmittance * color_dot - behind / (Vec(1.0f) - alpha);
}

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_COMPOSITING_H_
