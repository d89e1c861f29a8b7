// The forward pass over one tile, group by group: transmittance and colors stay in registers.
//
// Both passes evaluate a run of splats or groups first and composite afterwards. What is composited then hits at least
// one pixel, without a branch that depends on it, and the chains of dependent operations are half as long.
#ifndef JAXSPLAT_CPU_TILE_FORWARD_INC_H_
#define JAXSPLAT_CPU_TILE_FORWARD_INC_H_

#include <cstddef>
#include <cstdint>

#include "core/simd.h"
#include "cpu/primitives.inc.h"
#include "cpu/tile_batch.h"
#include "cpu/tile_kernels.h"
#include "cpu/trace.inc.h"
#include "math/compositing.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// kD is the number of channels if it is at most kInlineChannels, else 0: then colors are read from the caller's array.
template <int kD>
inline const float* ColorOf(const TileJob& job, const Gaussian2d& g) {
  if constexpr (kD > 0) return g.color;
  return job.colors + int64_t{g.id} * job.channels;
}

// A group's pixels before the first splat.
template <bool kGeneral, class Pixels>
Composited<kGeneral> BeginGroup(const TileJob& job, const BlockGrid& grid, const Pixels& pixels, int block, int group) {
  const Mask inside = pixels.Inside(grid, block, group);
  if constexpr (kGeneral) {
    alignas(64) float limits[kBlockPixels];
    for (float& limit : limits) limit = __builtin_inff();
    if (job.depth_limits != nullptr) {
      grid.ForEachPixel(block, [&](int i, int64_t pixel) { limits[i] = job.depth_limits[pixel]; });
    }
    return {inside, Vec::Load(limits + group * kLanes)};
  } else {
    return Composited<kGeneral>(inside);
  }
}

// What splat i of a batch does at one group: opacity times falloff, 0 where it does not hit. Returns whether it hits.
template <class P, bool kGeneral>
JAXSPLAT_INLINE bool EvaluateGroup(const typename P::Batch& batch, int i, const Composited<kGeneral>& pixels,
                                   const typename P::Pixel& pixel, float* raw) {
  Vec minus_q;
  Mask hit = P::Evaluate(batch, i, pixel, &minus_q);
  if constexpr (kGeneral) hit = hit & (Vec(batch.depths[i]) < pixels.depth_limit);
  Keep(hit, Vec(batch.splats[i].opacity) * Exp2(minus_q)).Store(raw);
  return Any(hit);
}

// Splats whose colors still have to be added to a group of more than kInlineChannels channels: with a few at a time,
// each accumulator is loaded and stored once for all of them.
struct ColorQueue {
  static constexpr int kSize = 8;
  Vec weight[kSize];
  const float* color[kSize];
  int size = 0;

  void Flush(float* accumulators, int64_t channels) {
    for (int64_t c = 0; c < channels; ++c) {
      Vec sum = Vec::Load(accumulators + c * kLanes);
      for (int i = 0; i < size; ++i) sum = Fma(weight[i], Vec(color[i][c]), sum);
      sum.Store(accumulators + c * kLanes);
    }
    size = 0;
  }
};

template <class P, int kD, bool kGeneral>
struct ForwardGroup {
  Vec last;
  Vec transmittance;  // behind the last splat that was blended
  Composited<kGeneral> pixels;
  Vec color[kD > 0 ? kD : 1];
  typename P::Hits hits;
};

// Blends the splats of `todo` into one group. Returns false when all its pixels have ended.
template <class P, int kD, bool kGeneral>
bool BlendGroup(const TileJob& job, const Rule& rule, const typename P::Batch& batch, Bits64 todo,
                const typename P::Pixel& pixel, ForwardGroup<P, kD, kGeneral>& state, float* accumulators) {
  constexpr int kRun = 16;
  alignas(64) float raw[kRun][kLanes];
  int hits[kRun];
  // Copies, so that they can stay in registers.
  Vec last = state.last, transmittance = state.transmittance;
  Composited<kGeneral> pixels = state.pixels;
  Vec color[kD > 0 ? kD : 1];
  for (int c = 0; c < kD; ++c) color[c] = state.color[c];
  typename P::Hits sums = state.hits;
  ColorQueue queue;
  bool alive = true;
  while (todo != 0 && alive) {
    int n = 0;
    for (int i = 0; i < kRun && todo != 0; ++i, todo &= todo - 1) {
      hits[n] = __builtin_ctzll(todo);
      n += EvaluateGroup<P>(batch, hits[n], pixels, pixel, raw[n]);
    }
    for (int i = 0; i < n && alive; ++i) {
      const Gaussian2d& g = batch.splats[hits[i]];
      const Vec alpha = Min(Vec(rule.alpha_max), Vec::Load(raw[i]));
      const Step step = Composite<kGeneral>(rule, alpha, &pixels);
      float id;
      __builtin_memcpy(&id, &g.id, sizeof(id));
      last = Select(step.blended, Vec(id), last);
      transmittance = Select(step.blended, pixels.product, transmittance);
      if constexpr (kD > 0) {
        for (int c = 0; c < kD; ++c) color[c] = Fma(step.weight, Vec(g.color[c]), color[c]);
      } else {
        queue.weight[queue.size] = step.weight;
        queue.color[queue.size] = ColorOf<kD>(job, g);
        if (++queue.size == ColorQueue::kSize) queue.Flush(accumulators, job.channels);
      }
      sums.Add(batch, hits[i], pixel, alpha, step);
      alive = Any(step.alive);
    }
  }
  if constexpr (kD == 0) queue.Flush(accumulators, job.channels);
  state.last = last;
  state.transmittance = transmittance;
  state.pixels = pixels;
  for (int c = 0; c < kD; ++c) state.color[c] = color[c];
  state.hits = sums;
  return alive;
}

template <class P, int kD, bool kGeneral>
void ForwardTile(const TileJob& job, const Picture& picture) {
  const BlockGrid grid(job);
  const Rule rule(job.blend);
  const typename P::Pixels pixels(job, grid);
  ForwardGroup<P, kD, kGeneral> groups[kMaxBlocks * kGroups];
  bool alive[kMaxBlocks * kGroups];
  const int32_t none = -1;
  float no_id;
  __builtin_memcpy(&no_id, &none, sizeof(no_id));
  for (int i = 0; i < grid.count * kGroups; ++i) {
    ForwardGroup<P, kD, kGeneral>& group = groups[i];
    group.pixels = BeginGroup<kGeneral>(job, grid, pixels, i / kGroups, i % kGroups);
    group.transmittance = Vec(1.0f);
    group.last = Vec(no_id);
    for (Vec& c : group.color) c = Vec(0.0f);
    alive[i] = Any(Vec(0.0f) < group.pixels.product);
  }
  const int64_t group_floats = kLanes * job.channels;
  if constexpr (kD == 0) {
    __builtin_memset(job.scratch, 0, sizeof(float) * static_cast<size_t>(grid.count * kGroups * group_floats));
  }
  typename P::Batch batch;
  Bits64 splats_of[kMaxBlocks];
  bool any = true;
  for (int64_t start = 0; start < job.size && any; start += kBatch) {
    batch.template Load<kGeneral>(job, start);
    batch.SplatsOfBlocks(grid, splats_of);
    any = false;
    for (int i = 0; i < kBatch; ++i) P::Batch::Prefetch(job, start, i);
    for (int i = 0; i < grid.count * kGroups; ++i) {
      const int block = i / kGroups;
      if (alive[i] && splats_of[block] != 0) {
        alive[i] = BlendGroup<P, kD, kGeneral>(job, rule, batch, splats_of[block], pixels.At(block, i % kGroups),
                                               groups[i], job.scratch + i * group_floats);
      }
      any |= alive[i];
    }
  }
  alignas(64) float values[kBlockPixels];
  for (int b = 0; b < grid.count; ++b) {
    const auto store = [&](auto* image, int64_t stride, const auto& value) {
      for (int k = 0; k < kGroups; ++k) value(b * kGroups + k).Store(values + k * kLanes);
      grid.Store(image, stride, b, values);
    };
    store(picture.transmittances, 1, [&](int i) { return groups[i].transmittance; });
    store(reinterpret_cast<float*>(picture.last_ids), 1, [&](int i) { return groups[i].last; });
    for (int64_t c = 0; c < job.channels; ++c) {
      store(picture.colors + c, job.channels, [&](int i) {
        return kD > 0 ? groups[i].color[kD > 0 ? c : 0] : Vec::Load(job.scratch + i * group_floats + c * kLanes);
      });
    }
    if constexpr (P::kHits) {
      for (int c = 0; c < kHitChannels; ++c) {
        store(picture.hits + c, kHitChannels, [&](int i) { return groups[i].hits.sum[c]; });
      }
    }
  }
}

bool IsGeneral(const TileJob& job) {
  return job.blend.blend_last || job.blend.max_contributors > 0 || job.blend.ClipsGradients() ||
         job.depth_limits != nullptr;
}

template <int kD>
void ForwardD(const TileJob& job, const Picture& picture) {
  IsGeneral(job) ? ForwardTile<Ellipses<false>, kD, true>(job, picture)
                 : ForwardTile<Ellipses<false>, kD, false>(job, picture);
}

// Along rays, the usual case is compiled on its own; the others share the general one.
bool IsGeneralRays(const TileJob& job) { return IsGeneral(job) || OriginsDiffer(job); }

template <int kD>
void ForwardRays(const TileJob& job, const Picture& picture) {
  const bool hits = picture.hits != nullptr;
  if (IsGeneralRays(job)) {
    hits ? ForwardTile<RaySplats<true, true>, kD, true>(job, picture)
         : ForwardTile<RaySplats<true, false>, kD, true>(job, picture);
  } else {
    hits ? ForwardTile<RaySplats<false, true>, kD, false>(job, picture)
         : ForwardTile<RaySplats<false, false>, kD, false>(job, picture);
  }
}

// Rounds as the forward pass does. Colors are of no interest, so the job has none.
void ForwardTraced(const TileJob& job, const Picture& picture) {
  if (job.world == nullptr) return ForwardTile<Traced<Ellipses<false>>, 0, true>(job, picture);
  IsGeneralRays(job) ? ForwardTile<Traced<RaySplats<true, false>>, 0, true>(job, picture)
                     : ForwardTile<Traced<RaySplats<false, false>>, 0, true>(job, picture);
}

void Forward(const TileJob& job, const Picture& picture) {
  if (job.trace != nullptr) return ForwardTraced(job, picture);
  if (job.world != nullptr) return job.channels == 3 ? ForwardRays<3>(job, picture) : ForwardRays<0>(job, picture);
  switch (job.channels) {
    case 1:
      return ForwardD<1>(job, picture);
    case 2:
      return ForwardD<2>(job, picture);
    case 3:
      return ForwardD<3>(job, picture);
    case 4:
      return ForwardD<4>(job, picture);
    default:
      return ForwardD<0>(job, picture);
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CPU_TILE_FORWARD_INC_H_
