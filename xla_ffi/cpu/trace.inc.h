// The forward pass with a record of what it blends: the same traversal, evaluation and rule, as a policy on top of one
// that evaluates.
#ifndef JAXSPLAT_CPU_TRACE_INC_H_
#define JAXSPLAT_CPU_TRACE_INC_H_

#include <cstdint>

#include "core/simd.h"
#include "cpu/tile_batch.h"
#include "cpu/tile_kernels.h"
#include "math/compositing.h"
#include "ops/trace_contributors.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// Lists one more splat of a pixel, behind those before it. Of equal weights, the nearer stays in front.
inline void Record(const Contributors& to, int64_t pixel, int32_t id, float alpha, float transmittance) {
  const int64_t count = to.counts[pixel]++;
  int32_t* const ids = to.ids + pixel * to.most;
  float* const alphas = to.alphas + pixel * to.most;
  float* const transmittances = to.transmittances + pixel * to.most;
  int64_t at = count < to.most ? count : to.most;
  const auto put = [&](int32_t what, float its_alpha, float in_front) {
    if (at == to.most) return;
    ids[at] = what;
    alphas[at] = its_alpha;
    transmittances[at] = in_front;
  };
  const float weight = transmittance * alpha;
  for (; to.by_weight && at > 0 && transmittances[at - 1] * alphas[at - 1] < weight; --at) {
    put(ids[at - 1], alphas[at - 1], transmittances[at - 1]);
  }
  put(id, alpha, transmittance);
}

template <class Base>
struct Traced : Base {
  struct Batch : Base::Batch {
    TraceSlot* slots[kBatch];

    template <bool kGeneral>
    void Load(const TileJob& job, int64_t start) {
      Base::Batch::template Load<kGeneral>(job, start);
      for (int i = 0; i < this->size; ++i) slots[i] = job.trace->slots + job.entries[start + i].slot;
    }
  };

  struct Pixel : Base::Pixel {
    const Contributors* to;
    const int64_t* pixels;  // of the lanes
  };
  class Pixels : public Base::Pixels {
   public:
    Pixels(const TileJob& job, const BlockGrid& grid) : Base::Pixels(job, grid), to_(job.trace->to) {
      for (int b = 0; b < grid.count; ++b) {
        grid.ForEachPixel(b, [&](int i, int64_t pixel) { pixels_[b * kGroups + i / kLanes][i % kLanes] = pixel; });
      }
    }
    Pixel At(int block, int group) const {
      return {Base::Pixels::At(block, group), &to_, pixels_[block * kGroups + group]};
    }

   private:
    const Contributors& to_;
    int64_t pixels_[kMaxBlocks * kGroups][kLanes];  // none where a lane lies outside: nothing is blended there
  };

  struct Hits {
    void Add(const Batch& batch, int i, const Pixel& pixel, const Vec& alpha, const Step& step) {
      alignas(64) float alphas[kLanes], before[kLanes];
      alpha.Store(alphas);
      step.before.Store(before);
      for (uint64_t left = Bits(step.blended); left != 0; left &= left - 1) {
        const int lane = __builtin_ctzll(left);
        Record(*pixel.to, pixel.pixels[lane], batch.splats[i].id, alphas[lane], before[lane]);
        batch.slots[i]->weight += static_cast<double>(before[lane] * alphas[lane]);
        ++batch.slots[i]->pixels;
      }
    }
  };
};

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CPU_TRACE_INC_H_
