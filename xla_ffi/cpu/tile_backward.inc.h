// The backward pass over one tile, splat by splat: its gradient is summed over the whole tile in registers and written
// once.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/simd.h"
#include "cpu/tile_batch.h"
#include "cpu/tile_forward.inc.h"
#include "cpu/tile_kernels.h"
#include "math/compositing.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

template <class P, int kD, bool kGeneral>
struct alignas(64) BackwardGroup {
  float v_color[kD > 0 ? kD : 1][kLanes];  // cotangents, if they are few
  float behind[kLanes];
  Composited<kGeneral> pixels;
  typename P::GroupGradient own;
};

// Sums of one splat's gradient over the pixels of a tile, lane by lane; those of the colors too if they are few.
template <class P, int kD>
struct LaneSums {
  typename P::Sums moments;
  Vec color[kD > 0 ? kD : 1];
  JAXSPLAT_INLINE LaneSums() {
    for (Vec& c : color) c = Vec(0.0f);
  }
};

// One splat at one group that it hits. If kD is 0, `v_colors` holds the group's cotangents [channels, lanes], and
// `more` is where the color gradients are summed, in the same layout. Returns false when all pixels of the group have
// ended.
template <class P, int kD, bool kGeneral, bool kClamped>
JAXSPLAT_INLINE bool AccumulateGroup(const Rule& rule, const typename P::Splat& splat, const float* color,
                                     const float* v_colors, int64_t channels, const Vec& raw,
                                     const typename P::Pixel& pixel, BackwardGroup<P, kD, kGeneral>& s,
                                     LaneSums<P, kD>& sums, float* more) {
  const Vec alpha = kClamped ? Min(Vec(rule.alpha_max), raw) : raw;
  const Step step = Composite<kGeneral>(rule, alpha, &s.pixels);
  Vec color_dot(0.0f);
  if constexpr (kD > 0) {
    for (int c = 0; c < kD; ++c) {
      const Vec v = Vec::Load(s.v_color[c]);
      color_dot = c == 0 ? Vec(color[c]) * v : Fma(Vec(color[c]), v, color_dot);
      sums.color[c] = Fma(step.weight, v, sums.color[c]);
    }
  } else {
    for (int64_t c = 0; c < channels; ++c) {
      const Vec v = Vec::Load(v_colors + c * kLanes);
      color_dot = Fma(Vec(color[c]), v, color_dot);
      Fma(step.weight, v, Vec::Load(more + c * kLanes)).Store(more + c * kLanes);
    }
  }
  const typename P::Point point(splat, pixel);
  if constexpr (P::kHits) color_dot = color_dot + sums.moments.AddHits(splat, pixel, point, step.weight, s.own);
  Vec behind = Vec::Load(s.behind);
  Vec m = ClipAlphaGradient<kGeneral>(rule, alpha, CompositeVjp(step, alpha, color_dot, &behind));
  behind.Store(s.behind);
  // Where the opacity is clamped, the geometry has no influence.
  if constexpr (kClamped) m = Keep(raw <= Vec(rule.alpha_max), m);
  sums.moments.Add(splat, point, m, step.weight, s.own);
  return Any(step.alive);
}

template <class P, int kD>
JAXSPLAT_INLINE void WriteSlot(const LaneSums<P, kD>& sums, const float* more, int64_t channels, float* slot) {
  const Vec zero(0.0f);
  sums.moments.Write(slot);
  // The slot has room for a multiple of four colors.
  if constexpr (kD > 0) {
    const auto color = [&](int c) -> const Vec& { return c < kD ? sums.color[c < kD ? c : 0] : zero; };
    SumFour(color(0), color(1), color(2), color(3), slot + P::kMoments);
  } else {
    for (int64_t c = 0; c < channels; c += 4) {
      const auto color = [&](int64_t k) { return c + k < channels ? Vec::Load(more + (c + k) * kLanes) : zero; };
      SumFour(color(0), color(1), color(2), color(3), slot + P::kMoments + c);
    }
  }
}

// Sets up the groups of one block; if kD is 0, their cotangents are copied to v_colors [groups, channels, lanes].
// Returns which groups have pixels in the image.
template <class P, int kD, bool kGeneral>
unsigned LoadBlock(const TileJob& job, const BlockGrid& grid, const typename P::Pixels& pixels,
                   const PictureGradient& gradient, const GradientSlots& slots, int b,
                   BackwardGroup<P, kD, kGeneral>* groups, float* v_colors) {
  const int64_t channels = kD > 0 ? kD : slots.channels;
  unsigned alive = 0;
  for (int k = 0; k < kGroups; ++k) {
    groups[k].pixels = BeginGroup<kGeneral>(job, grid, pixels, b, k);
    groups[k].own.Clear();
    alive |= static_cast<unsigned>(Any(Vec(0.0f) < groups[k].pixels.product)) << k;
    if (!grid.WhollyInside(b)) {
      __builtin_memset(groups[k].behind, 0, sizeof(groups[k].behind));
      if constexpr (kD > 0) {
        __builtin_memset(groups[k].v_color, 0, sizeof(groups[k].v_color));
      } else {
        __builtin_memset(v_colors + k * channels * kLanes, 0, sizeof(float) * static_cast<size_t>(channels * kLanes));
      }
    }
  }
  grid.ForEachPixel(b, [&](int i, int64_t pixel) {
    BackwardGroup<P, kD, kGeneral>& group = groups[i / kLanes];
    float* const to = kD > 0 ? group.v_color[0] : v_colors + i / kLanes * channels * kLanes;
    const int64_t first = pixel * job.channels + slots.first_channel;
    float sum = slots.first_pass ? gradient.transmittances[pixel] * gradient.v_transmittances[pixel] : 0.0f;
    for (int64_t c = 0; c < channels; ++c) {
      const float v = gradient.v_colors[first + c];
      to[c * kLanes + i % kLanes] = v;
      sum += v * gradient.colors[first + c];
    }
    if constexpr (P::kHits) sum += group.own.Load(gradient, slots.first_pass, pixel, i % kLanes);
    group.behind[i % kLanes] = sum;
  });
  return alive;
}

template <class P, int kD, bool kGeneral>
void BackwardTile(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  const BlockGrid grid(job);
  const Rule rule(job.blend);
  const typename P::Pixels pixels(job, grid);
  const int64_t channels = kD > 0 ? kD : slots.channels;
  const int64_t group_floats = kLanes * channels;
  BackwardGroup<P, kD, kGeneral> groups[kMaxBlocks * kGroups];
  grid.Prefetch(gradient.v_colors, job.channels);
  grid.Prefetch(gradient.colors, job.channels);
  grid.Prefetch(gradient.v_transmittances, 1);
  grid.Prefetch(gradient.transmittances, 1);
  // The groups of each block that have not ended, and the blocks that have such groups.
  unsigned groups_alive[kMaxBlocks];
  Bits64 alive = 0;
  for (int b = 0; b < grid.count; ++b) {
    groups_alive[b] = LoadBlock<P, kD, kGeneral>(job, grid, pixels, gradient, slots, b, groups + b * kGroups,
                                                 job.scratch + b * kGroups * group_floats);
    if (groups_alive[b] != 0) alive |= Bits64{1} << b;
  }
  // Behind the cotangents of the blocks.
  float* const more = job.scratch + grid.count * kGroups * group_floats;
  typename P::Batch batch;
  Bits64 blocks_of[kBatch];
  constexpr int kRun = 8;
  alignas(64) float raw[kRun * kMaxBlocks * kGroups][kLanes];
  int hits[kRun * kMaxBlocks * kGroups];
  for (int64_t start = 0; start < job.size && alive != 0; start += kBatch) {
    batch.template Load<kGeneral>(job, start);
    batch.BlocksOfSplats(grid, blocks_of);
    for (int first = 0; first < batch.size; first += kRun) {
      const int end = first + kRun < batch.size ? first + kRun : batch.size;
      int n = 0;
      int ends[kRun];
      for (int i = first; i < end; ++i) {
        P::Batch::Prefetch(job, start, i);
        for (Bits64 left = blocks_of[i] & alive; left != 0; left &= left - 1) {
          const int b = __builtin_ctzll(left);
          for (int k = 0; k < kGroups; ++k) {
            hits[n] = b * kGroups + k;
            n += EvaluateGroup<P>(batch, i, groups[hits[n]].pixels, pixels.At(b, k), raw[n]);
          }
        }
        ends[i - first] = n;
      }
      int h = 0;
      for (int i = first; i < end; ++i) {
        if (h == ends[i - first]) continue;
        const Gaussian2d& g = batch.splats[i];
        const typename P::Splat splat(batch, i, slots);
        const float* color = ColorOf<kD>(job, g) + slots.first_channel;
        LaneSums<P, kD> sums;
        if constexpr (kD == 0) __builtin_memset(more, 0, sizeof(float) * static_cast<size_t>(group_floats));
        const auto accumulate = [&](auto clamped) {
          for (; h < ends[i - first]; ++h) {
            const int group = hits[h], block = group / kGroups;
            if (!AccumulateGroup<P, kD, kGeneral, decltype(clamped)::value>(
                    rule, splat, color, job.scratch + group * group_floats, channels, Vec::Load(raw[h]),
                    pixels.At(block, group % kGroups), groups[group], sums, more)) {
              groups_alive[block] &= ~(1u << group % kGroups);
              if (groups_alive[block] == 0) alive &= ~(Bits64{1} << block);
            }
          }
        };
        g.opacity <= rule.alpha_max ? accumulate(std::false_type()) : accumulate(std::true_type());
        const int64_t slot = job.entries[start + i].slot;
        WriteSlot(sums, more, channels, slots.values + slot * slots.stride);
        slots.touched[slot] = 1;
      }
    }
  }
  for (int b = 0; b < grid.count; ++b) {
    for (int k = 0; k < kGroups; ++k) groups[b * kGroups + k].own.Store(grid, b, k, slots.v_rays);
  }
}

template <int kD>
void BackwardD(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  if (IsGeneral(job)) {
    slots.absgrad ? BackwardTile<Ellipses<true>, kD, true>(job, gradient, slots)
                  : BackwardTile<Ellipses<false>, kD, true>(job, gradient, slots);
  } else {
    slots.absgrad ? BackwardTile<Ellipses<true>, kD, false>(job, gradient, slots)
                  : BackwardTile<Ellipses<false>, kD, false>(job, gradient, slots);
  }
}

template <int kD>
void BackwardRays(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  const bool hits = gradient.hits != nullptr;
  if (IsGeneralRays(job)) {
    hits ? BackwardTile<RaySplats<true, true>, kD, true>(job, gradient, slots)
         : BackwardTile<RaySplats<true, false>, kD, true>(job, gradient, slots);
  } else {
    hits ? BackwardTile<RaySplats<false, true>, kD, false>(job, gradient, slots)
         : BackwardTile<RaySplats<false, false>, kD, false>(job, gradient, slots);
  }
}

void Backward(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  if (job.world != nullptr) {
    return job.channels == 3 ? BackwardRays<3>(job, gradient, slots) : BackwardRays<0>(job, gradient, slots);
  }
  switch (job.channels) {
    case 1:
      return BackwardD<1>(job, gradient, slots);
    case 2:
      return BackwardD<2>(job, gradient, slots);
    case 3:
      return BackwardD<3>(job, gradient, slots);
    case 4:
      return BackwardD<4>(job, gradient, slots);
    default:
      return BackwardD<0>(job, gradient, slots);
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
