// The blend rule, front to back, and its reverse step.
#ifndef JAXSPLAT_MATH_COMPOSITING_H_
#define JAXSPLAT_MATH_COMPOSITING_H_

#include "core/simd.h"
#include "ops/rasterize_gaussians_3d.h"

namespace jaxsplat::JAXSPLAT_ISA {

// Constants of the rule, as broadcast by the kernels. The usual rule has no limits and does not blend the splat that
// ends a pixel; the kernels are compiled once for it and once for all others (kGeneral).
struct Rule {
  float alpha_max, transmittance_min, most, steepest;
  bool blend_last;
  JAXSPLAT_HD explicit Rule(const BlendRule& rule)
      : alpha_max(static_cast<float>(rule.alpha_max)),
        transmittance_min(static_cast<float>(rule.transmittance_min)),
        most(rule.max_contributors > 0 ? static_cast<float>(rule.max_contributors) : 3e38f),
        steepest(static_cast<float>(rule.ClipsGradients() ? rule.alpha_gradient_max : kUnlimitedGradient)),
        blend_last(rule.blend_last) {}
};

// Pixels on their way through the splats.
template <bool kGeneral>
struct Composited {
  // Product of 1 - alpha over all splats so far. It only falls, so a pixel has ended where it is not above
  // transmittance_min: no state is needed, and from splat to splat the only chain is one multiplication.
  Vec product;

  // Pixels outside the image have ended before they begin.
  JAXSPLAT_HD explicit Composited(const Mask& inside) : product(Keep(inside, Vec(1.0f))) {}
  Composited() = default;
};
template <>
struct Composited<true> : Composited<false> {
  Vec count;        // splats blended so far
  Vec depth_limit;  // those that are not nearer do not hit

  JAXSPLAT_HD Composited(const Mask& inside, const Vec& depth_limit)
      : Composited<false>(inside), count(Vec(0.0f)), depth_limit(depth_limit) {}
  Composited() = default;
};

struct Step {
  Vec before;    // transmittance in front of the splat
  Vec weight;    // what the splat's color is multiplied by: transmittance times alpha, 0 where it is not blended
  Mask blended;  // where it is blended, among the pixels where alpha > 0
  Mask alive;    // pixels that go on
};

// One splat in front of what is still to come; alpha is 0 where it does not hit.
template <bool kGeneral>
JAXSPLAT_INLINE Step Composite(const Rule& rule, const Vec& alpha, Composited<kGeneral>* pixels) {
  const Vec minimum(rule.transmittance_min);
  const Vec before = pixels->product;
  const Mask hit = Vec(0.0f) < alpha;
  pixels->product = before * (Vec(1.0f) - alpha);
  Step step;
  step.before = before;
  step.alive = minimum < pixels->product;
  step.blended = hit & step.alive;
  if constexpr (kGeneral) {
    const Vec most(rule.most);
    if (rule.blend_last) step.blended = hit & (minimum < before);
    step.blended = step.blended & (pixels->count < most);
    pixels->count = pixels->count + Keep(step.blended, Vec(1.0f));
    step.alive = step.alive & (pixels->count < most);
  }
  step.weight = Keep(step.blended, before * alpha);
  return step;
}

// alpha dL/dalpha of a splat, 0 where it is not blended. `behind` is what the loss's linear form gets from
// behind the splat: the sum over later splats of weight (color . gradient), and the final transmittance times its
// gradient. On entry it still has the splat's own part. dL/dalpha = T (color . gradient) - behind / (1 - alpha).
JAXSPLAT_INLINE Vec CompositeVjp(const Step& step, const Vec& alpha, const Vec& color_dot, Vec* behind) {
  const Vec own = step.weight * color_dot;
  *behind = *behind - own;
  return Keep(step.blended, Fnma(*behind, alpha * Reciprocal(Vec(1.0f) - alpha), own));
}

// Clips dL/dalpha, given as alpha dL/dalpha, where the rule says so. A NaN stays one.
template <bool kGeneral>
JAXSPLAT_INLINE Vec ClipAlphaGradient(const Rule& rule, const Vec& alpha, const Vec& m) {
  if constexpr (!kGeneral) return m;
  const Vec most = Vec(rule.steepest) * alpha;
  return Min(most, Max(Vec(0.0f) - most, m));
}

}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_MATH_COMPOSITING_H_
