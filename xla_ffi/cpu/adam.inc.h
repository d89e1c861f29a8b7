// One step of Adam in one pass over the memory. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>

#include "core/simd.h"
#include "ops/adam.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

void Adam(const AdamRule& rule, const AdamArrays& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const int64_t n = std::min<int64_t>(kLanes, end - i);
    const Vec g = LoadPart(a.gradient + i, n);
    const Vec first = Fma(Vec(rule.beta1), LoadPart(a.first + i, n), Vec(1.0f - rule.beta1) * g);
    const Vec second = Fma(Vec(rule.beta2), LoadPart(a.second + i, n), Vec(1.0f - rule.beta2) * g * g);
    const Vec scale = Sqrt(second / Vec(rule.correction2)) + Vec(rule.epsilon);
    const Vec move = first / (Vec(rule.correction1) * scale);
    StorePart(Fnma(Vec(rule.rate), move, LoadPart(a.values + i, n)), a.new_values + i, n);
    StorePart(first, a.new_first + i, n);
    StorePart(second, a.new_second + i, n);
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
