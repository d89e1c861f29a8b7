// One step of Adam in one pass over the memory. Included by one source file per instruction set.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/simd.h"
#include "ops/adam.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

JAXSPLAT_INLINE void AdamVector(const AdamRule& rule, const AdamArrays& a, int64_t i) {
  const Vec g = Vec::Load(a.gradient + i);
  const Vec first = Fma(Vec(rule.beta1), Vec::Load(a.first + i), Vec(1.0f - rule.beta1) * g);
  const Vec second = Fma(Vec(rule.beta2), Vec::Load(a.second + i), Vec(1.0f - rule.beta2) * g * g);
  const Vec scale = Sqrt(second / Vec(rule.correction2)) + Vec(rule.epsilon);
  const Vec move = first / (Vec(rule.correction1) * scale);
  Fnma(Vec(rule.rate), move, Vec::Load(a.values + i)).Store(a.new_values + i);
  first.Store(a.new_first + i);
  second.Store(a.new_second + i);
}

void Adam(const AdamRule& rule, const AdamArrays& a, int64_t begin, int64_t end) {
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) AdamVector(rule, a, i);
  if (i == end) return;
  // The rest by way of a full vector.
  const size_t bytes = sizeof(float) * static_cast<size_t>(end - i);
  alignas(64) float values[kLanes] = {}, first[kLanes] = {}, second[kLanes] = {}, gradient[kLanes] = {};
  std::memcpy(values, a.values + i, bytes);
  std::memcpy(first, a.first + i, bytes);
  std::memcpy(second, a.second + i, bytes);
  std::memcpy(gradient, a.gradient + i, bytes);
  AdamVector(rule, {values, first, second, gradient, values, first, second}, 0);
  std::memcpy(a.new_values + i, values, bytes);
  std::memcpy(a.new_first + i, first, bytes);
  std::memcpy(a.new_second + i, second, bytes);
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
