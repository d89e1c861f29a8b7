// The blend rule, front to back, and its reverse step.
#ifndef JAXSPLAT_MATH_COMPOSITING_H_
#define JAXSPLAT_MATH_COMPOSITING_H_

#include "core/simd.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat::JAXSPLAT_ISA {

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
};

// One splat in front of what is still to come. The pixels that it ends leave `alive`, and leave `hit` too if the splat
// is not blended there. `count` (only looked at if kLimited) is the number of splats blended so far. Without branches:
// where pixels end is hard to predict.
template <bool kLimited>
JAXSPLAT_INLINE Step Composite(const Rule& rule, const Vec& alpha, const Vec& transmittance, Mask* hit, Mask* alive,
                               Vec* count) {
  Step step;
  step.weight = Keep(*hit, transmittance * alpha);
  step.next = transmittance - step.weight;
  const Mask ends = *hit & (step.next <= Vec(rule.transmittance_min));
  *alive = AndNot(*alive, ends);
  if (!rule.blend_last) {
    *hit = AndNot(*hit, ends);
    step.weight = Keep(*hit, step.weight);
    step.next = Select(ends, transmittance, step.next);
  }
  if constexpr (kLimited) {
    *count = *count + Keep(*hit, Vec(1.0f));
    *alive = AndNot(*alive, Vec(rule.most) <= *count);
  }
  return step;
}

// alpha dL/dalpha of a splat, 0 where it is not blended. `behind` is what the loss's linear form gets from behind it:
// the sum over later splats of weight (color . gradient), and the final transmittance times its gradient. On entry it
// still has the splat's own part. As alpha / (1 - alpha) = weight / next: dL/dalpha = T (color . gradient) - behind /
// (1 - alpha).
JAXSPLAT_INLINE Vec CompositeVjp(const Step& step, const Mask& hit, const Vec& color_dot, Vec* behind) {
  const Vec own = step.weight * color_dot;
  *behind = *behind - own;
  return Keep(hit, Fnma(*behind, step.weight * Reciprocal(step.next), own));
}

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_COMPOSITING_H_
