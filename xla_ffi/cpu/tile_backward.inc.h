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

template <int kD, bool kGeneral>
struct alignas(64) BackwardGroup {
  float v_color[kD > 0 ? kD : 1][kLanes];  // cotangents, if they are few
  float behind[kLanes];
  Composited<kGeneral> pixels;
};

// Sums of one splat's gradient over the pixels of a tile, lane by lane; those of the colors too if they are few.
template <int kD, bool kAbs>
struct LaneSums {
  Vec m, x, y, xx, xy, yy, abs_x, abs_y;
  Vec color[kD > 0 ? kD : 1];
  JAXSPLAT_INLINE LaneSums() {
    m = x = y = xx = xy = yy = abs_x = abs_y = Vec(0.0f);
    for (Vec& c : color) c = Vec(0.0f);
  }
};

// One splat at one group that it hits. If kD is 0, `v_colors` holds the group's cotangents [channels, lanes], and
// `more` is where the color gradients are summed, in the same layout. Returns false when all pixels of the group have
// ended.
template <int kD, bool kGeneral, bool kAbs, bool kClamped>
JAXSPLAT_INLINE bool AccumulateGroup(const Rule& rule, const Gaussian2d& g, const float* color, const float* conic,
                                     const float* v_colors, int64_t channels, const Vec& raw, const Vec& x,
                                     const Vec& y, BackwardGroup<kD, kGeneral>& s, LaneSums<kD, kAbs>& sums,
                                     float* more) {
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
  Vec behind = Vec::Load(s.behind);
  Vec m = CompositeVjp(step, alpha, color_dot, &behind);
  behind.Store(s.behind);
  // Where the opacity is clamped, the geometry has no influence.
  if constexpr (kClamped) m = Keep(raw <= Vec(rule.alpha_max), m);
  const Vec dx = x - Vec(g.x), dy = y - Vec(g.y);
  const Vec mx = m * dx, my = m * dy;
  sums.m = sums.m + m;
  sums.x = sums.x + mx;
  sums.y = sums.y + my;
  sums.xx = Fma(mx, dx, sums.xx);
  sums.xy = Fma(mx, dy, sums.xy);
  sums.yy = Fma(my, dy, sums.yy);
  if constexpr (kAbs) {
    sums.abs_x = sums.abs_x + Abs(Fma(Vec(conic[0]), mx, Vec(conic[1]) * my));
    sums.abs_y = sums.abs_y + Abs(Fma(Vec(conic[1]), mx, Vec(conic[2]) * my));
  }
  return Any(step.alive);
}

template <int kD, bool kAbs>
JAXSPLAT_INLINE void WriteSlot(const LaneSums<kD, kAbs>& sums, const float* more, int64_t channels, float* slot) {
  const Vec zero(0.0f);
  SumFour(sums.m, sums.x, sums.y, sums.xx, slot);
  SumFour(sums.xy, sums.yy, kAbs ? sums.abs_x : zero, kAbs ? sums.abs_y : zero, slot + 4);
  // The slot has room for a multiple of four colors.
  if constexpr (kD > 0) {
    const auto color = [&](int c) -> const Vec& { return c < kD ? sums.color[c < kD ? c : 0] : zero; };
    SumFour(color(0), color(1), color(2), color(3), slot + kMomentSlots);
  } else {
    for (int64_t c = 0; c < channels; c += 4) {
      const auto color = [&](int64_t k) { return c + k < channels ? Vec::Load(more + (c + k) * kLanes) : zero; };
      SumFour(color(0), color(1), color(2), color(3), slot + kMomentSlots + c);
    }
  }
}

// Sets up the groups of one block; if kD is 0, their cotangents are copied to v_colors [groups, channels, lanes].
// Returns which groups have pixels in the image.
template <int kD, bool kGeneral>
unsigned LoadBlock(const TileJob& job, const BlockGrid& grid, const PixelCentres& centres,
                   const PictureGradient& gradient, const GradientSlots& slots, int b,
                   BackwardGroup<kD, kGeneral>* groups, float* v_colors) {
  const int64_t channels = kD > 0 ? kD : slots.channels;
  unsigned alive = 0;
  for (int k = 0; k < kGroups; ++k) {
    groups[k].pixels = BeginGroup<kGeneral>(job, grid, centres, b, k);
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
    BackwardGroup<kD, kGeneral>& group = groups[i / kLanes];
    float* const to = kD > 0 ? group.v_color[0] : v_colors + i / kLanes * channels * kLanes;
    const int64_t first = pixel * job.channels + slots.first_channel;
    float sum = slots.first_pass ? gradient.transmittances[pixel] * gradient.v_transmittances[pixel] : 0.0f;
    for (int64_t c = 0; c < channels; ++c) {
      const float v = gradient.v_colors[first + c];
      to[c * kLanes + i % kLanes] = v;
      sum += v * gradient.colors[first + c];
    }
    group.behind[i % kLanes] = sum;
  });
  return alive;
}

template <int kD, bool kGeneral, bool kAbs>
void BackwardTile(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  const BlockGrid grid(job);
  const Rule rule(job.blend);
  const PixelCentres centres(grid);
  const int64_t channels = kD > 0 ? kD : slots.channels;
  const int64_t group_floats = kLanes * channels;
  BackwardGroup<kD, kGeneral> groups[kMaxBlocks * kGroups];
  grid.Prefetch(gradient.v_colors, job.channels);
  grid.Prefetch(gradient.colors, job.channels);
  grid.Prefetch(gradient.v_transmittances, 1);
  grid.Prefetch(gradient.transmittances, 1);
  // The groups of each block that have not ended, and the blocks that have such groups.
  unsigned groups_alive[kMaxBlocks];
  Bits64 alive = 0;
  for (int b = 0; b < grid.count; ++b) {
    groups_alive[b] = LoadBlock(job, grid, centres, gradient, slots, b, groups + b * kGroups,
                                job.scratch + b * kGroups * group_floats);
    if (groups_alive[b] != 0) alive |= Bits64{1} << b;
  }
  // Behind the cotangents of the blocks.
  float* const more = job.scratch + grid.count * kGroups * group_floats;
  Batch batch;
  Bits64 blocks_of[kBatch];
  constexpr int kRun = 8;
  alignas(64) float raw[kRun * kMaxBlocks * kGroups][kLanes];
  int hits[kRun * kMaxBlocks * kGroups];
  for (int64_t start = 0; start < job.size && alive != 0; start += kBatch) {
    batch.Load<kGeneral>(job, start);
    batch.BlocksOfSplats(grid, blocks_of);
    for (int first = 0; first < batch.size; first += kRun) {
      const int end = first + kRun < batch.size ? first + kRun : batch.size;
      int n = 0;
      int ends[kRun];
      for (int i = first; i < end; ++i) {
        Batch::Prefetch(job, start, i);
        for (Bits64 left = blocks_of[i] & alive; left != 0; left &= left - 1) {
          const int b = __builtin_ctzll(left);
          for (int k = 0; k < kGroups; ++k) {
            hits[n] = b * kGroups + k;
            n += EvaluateGroup<kGeneral>(batch, i, groups[hits[n]].pixels, centres.x(b), centres.y(b, k), raw[n]);
          }
        }
        ends[i - first] = n;
      }
      int h = 0;
      for (int i = first; i < end; ++i) {
        if (h == ends[i - first]) continue;
        const Gaussian2d& g = batch.splats[i];
        const float* conic = slots.conics + int64_t{g.id} * 3;
        const float* color = ColorOf<kD>(job, g) + slots.first_channel;
        LaneSums<kD, kAbs> sums;
        if constexpr (kD == 0) __builtin_memset(more, 0, sizeof(float) * static_cast<size_t>(group_floats));
        const auto accumulate = [&](auto clamped) {
          for (; h < ends[i - first]; ++h) {
            const int group = hits[h], block = group / kGroups;
            if (!AccumulateGroup<kD, kGeneral, kAbs, decltype(clamped)::value>(
                    rule, g, color, conic, job.scratch + group * group_floats, channels, Vec::Load(raw[h]),
                    centres.x(block), centres.y(block, group % kGroups), groups[group], sums, more)) {
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
}
template <int kD>
void BackwardD(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  if (IsGeneral(job)) {
    slots.absgrad ? BackwardTile<kD, true, true>(job, gradient, slots)
                  : BackwardTile<kD, true, false>(job, gradient, slots);
  } else {
    slots.absgrad ? BackwardTile<kD, false, true>(job, gradient, slots)
                  : BackwardTile<kD, false, false>(job, gradient, slots);
  }
}

void Backward(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
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
