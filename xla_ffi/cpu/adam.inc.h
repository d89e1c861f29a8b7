// One step of Adam in one pass over the memory. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/simd.h"
#include "ops/adam.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

void Adam(const AdamRule& rule, const AdamArrays& a, int64_t begin, int64_t end, const float* changed) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, end - i);
    const Vec g = LoadPart(a.gradient + i, n), values = LoadPart(a.values + i, n);
    const Vec old_first = LoadPart(a.first + i, n), old_second = LoadPart(a.second + i, n);
    Vec first = Fma(Vec(rule.beta1), old_first, Vec(1.0f - rule.beta1) * g);
    Vec second = Fma(Vec(rule.beta2), old_second, Vec(1.0f - rule.beta2) * g * g);
    const Vec scale = Sqrt(second / Vec(rule.correction2)) + Vec(rule.epsilon);
    const Vec move = first / (Vec(rule.correction1) * scale);
    Vec moved = Fnma(Vec(rule.rate), move, values);
    if (changed != nullptr) {
      const Mask chosen = Vec(0.0f) < LoadPart(changed + (i - begin), n);
      moved = Select(chosen, moved, values);
      first = Select(chosen, first, old_first);
      second = Select(chosen, second, old_second);
    }
    StorePart(moved, a.values + i, n);
    StorePart(first, a.first + i, n);
    StorePart(second, a.second + i, n);
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
