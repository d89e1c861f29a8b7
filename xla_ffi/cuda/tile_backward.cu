// The backward pass, front to back like the forward one. A splat's gradient is summed over the lanes of each warp, then
// over the warps of the block, then over the tiles, always in the same order.
#include "cuda/tile_backward.h"
#include "cuda/tile_primitives.h"
#include "cuda/warp_sum.h"

namespace jaxsplat::cuda {
namespace {

// Splats that a block works on between barriers: one bit each of a word.
constexpr int kRun = 32;

// A slot holds the moments of a primitive and the gradients of the colors, and is written only if touched[slot]
// becomes 1. The parts of a tile have slots of their own, one after another.
struct Slots {
  float* values;  // [slots * parts, stride]
  uint8_t* touched;
  int stride;
};

template <class P, int kC, bool kWide, bool kGeneral>
__global__ void __launch_bounds__(kThreads, P::kLeastBlocks)
    BackwardTile(TileArguments a, PictureGradientBatch gradient, Slots slots, WorldGradient world) {
  constexpr int kMoments = P::kMoments, kSums = kMoments + kC;
  constexpr bool kAbs = P::kAbs;
  __shared__ typename P::Entry batch[kRun];
  __shared__ uint32_t batch_slots[kRun];
  __shared__ float wide_colors[kWide ? kRun : 1][kC];
  __shared__ float conics[kAbs ? kRun : 1][3];
  __shared__ float partial[kMostWarps][kRun][kSums];
  __shared__ uint32_t hits[kMostWarps];
  const TilePixel me(a);
  if (!me.on) return;
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % kWarp, warp = thread / kWarp, sum_index = SumIndex<kSums>(lane);
  const int64_t all_channels = a.batch.channels;
  const float* const colors = a.batch.colors.At(me.index);
  const float* const v_colors = gradient.v_colors.At(me.index) + me.pixel * all_channels;
  const Vec alpha_max(a.rule.alpha_max);
  const typename P::Pixel point(a, me);
  Composited<kGeneral> pixels = BeginPixel<kGeneral>(a, me, point.sees);
  Vec behind(0.0f), v_color[kC];
  for (int c = 0; c < kC; ++c) v_color[c] = Vec(0.0f);
  // With the absolute value, which needs all channels at once, only the first pass is about the geometry.
  const bool geometry = !(kWide && kAbs) || a.first_channel == 0;
  if (me.inside) {
    const float* picture = gradient.colors.At(me.index) + me.pixel * all_channels;
    if (a.first_channel == 0) {
      behind =
          Vec(gradient.transmittances.At(me.index)[me.pixel]) * Vec(gradient.v_transmittances.At(me.index)[me.pixel]);
    }
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      if (c < a.channels) v_color[c] = Vec(v_colors[a.first_channel + c]);
    }
    const int64_t first = kWide && kAbs ? 0 : a.first_channel, count = kWide && kAbs ? all_channels : a.channels;
    for (int64_t c = first; c < first + count; ++c) behind = behind + Vec(v_colors[c]) * Vec(picture[c]);
  }
  typename P::PixelGradient own(a, gradient, world, me, &behind);
  bool done = !point.sees;
  for (uint32_t start = me.range.begin; start < me.range.end; start += kRun) {
    // Also the barrier behind the last use of the run before.
    if (__syncthreads_count(done) == threads) break;
    const int n = me.range.end - start < kRun ? static_cast<int>(me.range.end - start) : kRun;
    if (thread < n) {
      P::Load(a, me, start + thread, &batch[thread]);
      batch_slots[thread] = a.lists.slots[start + thread];
    }
    for (int k = thread; (kWide || kAbs) && k < n * kRun; k += threads) {
      const int i = k / kRun, c = k % kRun;
      const auto row = static_cast<uint32_t>(a.lists.entries[start + i]);
      const int64_t id = row - me.image * a.batch.size;
      const bool listed = row != 0xffffffffu;
      if (kWide && c < kC) {
        const bool there = listed && c < a.channels;
        wide_colors[kWide ? i : 0][c] = there ? colors[id * all_channels + a.first_channel + c] : 0.0f;
      }
      if (kAbs && c < 3) conics[kAbs ? i : 0][c] = listed ? a.batch.conics.At(me.index)[id * 3 + c] : 0.0f;
    }
    __syncthreads();
    uint32_t warp_hits = 0;
    for (int i = 0; i < n; ++i) {
      const typename P::Evaluation e = P::Evaluate(batch[i], point);
      const Mask hit{e.hit && !done && InFront(a, me, e.id, pixels)};
      if (!__any_sync(kAllLanes, hit.v)) continue;
      float sums[kSums] = {};
      // Along rays a lane without a hit may not have evaluated anything.
      if (!P::kRays || hit.v) {
        const Vec raw = Keep(hit, Vec(e.opacity) * Exp2(e.minus_q)), alpha = Min(alpha_max, raw);
        const Step step = Composite<kGeneral>(a.rule, alpha, &pixels);
        const float* color = kWide ? wide_colors[kWide ? i : 0] : P::Color(batch[i]);
        Vec color_dot(0.0f);
#pragma unroll
        for (int c = 0; c < kC; ++c) {
          color_dot = c == 0 ? Vec(color[c]) * v_color[c] : Fma(Vec(color[c]), v_color[c], color_dot);
          sums[kMoments + c] = (step.weight * v_color[c]).v;
        }
        if constexpr (kWide && kAbs) {
          color_dot = Vec(0.0f);
          const float* all = colors + e.id * all_channels;
          for (int64_t c = 0; hit.v && c < all_channels; ++c) color_dot = Fma(Vec(all[c]), Vec(v_colors[c]), color_dot);
        }
        typename P::Terms terms(batch[i], e);
        terms.AddHits(batch[i], point, step.weight, own, &color_dot);
        Vec m = ClipAlphaGradient<kGeneral>(a.rule, alpha, CompositeVjp(step, alpha, color_dot, &behind));
        // Where the opacity is clamped, the geometry has no influence.
        m = Keep(raw <= alpha_max & Mask{geometry}, m);
        terms.Sum(batch[i], e, m, step.weight, conics[kAbs ? i : 0], own, sums);
        done = done || !step.alive.v;
      }
      SumLanes<kSums>(sums, lane);
      if (sum_index >= 0) partial[warp][i][sum_index] = sums[0];
      warp_hits |= 1u << i;
    }
    if (lane == 0) hits[warp] = warp_hits;
    __syncthreads();
    for (int k = thread; k < n * kSums; k += threads) {
      const int i = k / kSums, j = k % kSums;
      float sum = 0;
      bool any = false;
      for (int w = 0; w < threads / kWarp; ++w) {
        if ((hits[w] >> i & 1) == 0) continue;
        sum += partial[w][i][j];
        any = true;
      }
      if (!any) continue;
      const int64_t slot = static_cast<int64_t>(batch_slots[i]) * a.Parts() + me.part;
      slots.values[slot * slots.stride + (j < kMoments ? j : P::kSlotMoments + j - kMoments)] = sum;
      if (j == 0) slots.touched[slot] = 1;
    }
  }
  own.Store(a, world, me);
}

// Each chunk of channels adds to what the ones before it left.
template <class T>
__device__ void Write(const TileArguments& a, float* at, T value) {
  *at = static_cast<float>(a.first_channel == 0 ? value : static_cast<T>(*at) + value);
}

// The gradient of splat `id` of an image, whose place in the results is `to`, from its moments.
template <bool kAbs>
__device__ void WriteGradient(const TileArguments& a, ScreenSplats<kAbs>, const ImageIndex& image, int64_t, int64_t id,
                              int64_t to, const float* sums, bool any, const SplatGradient& result,
                              const WorldGradient&) {
  const Moments2d moments{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]};
  // The conic and the opacity of a splat that hits no pixel may be anything.
  const GaussianGradient2d g =
      any ? EvaluateVjp(moments, a.batch.conics.At(image) + id * 3, a.batch.opacities.At(image)[id])
          : GaussianGradient2d{};
  for (int k = 0; k < 2; ++k) Write(a, result.means + to * 2 + k, g.mean[k]);
  for (int k = 0; k < 3; ++k) Write(a, result.conics + to * 3 + k, g.conic[k]);
  Write(a, result.opacities + to, g.opacity);
  if (kAbs) {
    Write(a, result.absgrads + to * 2, moments.abs_x);
    Write(a, result.absgrads + to * 2 + 1, moments.abs_y);
  }
}
template <bool kHits>
__device__ void WriteGradient(const TileArguments& a, RaySplats<kHits>, const ImageIndex& image, int64_t local,
                              int64_t id, int64_t to, const float* sums, bool any, const SplatGradient& result,
                              const WorldGradient& world) {
  const WorldBatch& splats = a.batch.world;
  WorldGaussianGradient g{};
  if (any) {
    const MomentsWorld moments{
        sums[0], {sums[1], sums[2], sums[3]}, sums[4], sums[5], sums[6], sums[7], sums[8], sums[9], {}, {}, 0};
    const float* const scale = splats.scales.At(image) + id * 3;
    const CanonicalSpace space(splats.means.At(image) + id * 3, splats.quats.At(image) + id * 4, scale,
                               splats.rays.At(image) + a.lists.anchors[local] * 6);
    g = EvaluateVjp(moments, space, scale, a.batch.opacities.At(image)[id]);
  }
  for (int k = 0; k < 3; ++k) Write(a, world.means + to * 3 + k, g.mean[k]);
  for (int k = 0; k < 4; ++k) Write(a, world.quats + to * 4 + k, g.quat[k]);
  for (int k = 0; k < 3; ++k) Write(a, world.scales + to * 3 + k, g.scale[k]);
  Write(a, result.opacities + to, g.opacity);
  for (int k = 0; kHits && k < 3; ++k) Write(a, world.normals + to * 3 + k, any ? sums[10 + k] : 0.0f);
}

// The gradient of each splat from its slots, in the order of its tiles. kC is the number of channels of a slot.
template <class P, int kC>
__global__ void __launch_bounds__(kThreads)
    ReduceSplats(TileArguments a, Slots slots, SplatGradient result, WorldGradient world) {
  constexpr int kMoments = P::kSlotMoments;
  const int64_t i = ThreadIndex();
  if (i >= a.chunk.count * a.batch.size) return;
  const int64_t row = a.lists.order == nullptr ? i : a.lists.order[i];
  const int64_t begin = i > 0 ? a.lists.slot_ends[i - 1] : 0, end = a.lists.slot_ends[i];
  float sums[kMoments + kC] = {};
  bool any = false;
  for (int64_t slot = begin * a.Parts(); slot < end * a.Parts(); ++slot) {
    if (slots.touched[slot] == 0) continue;
    any = true;
    const float* values = slots.values + slot * slots.stride;
#pragma unroll
    for (int k = 0; k < kMoments + kC; ++k) {
      if (k < P::kMoments || k >= kMoments) sums[k] += values[k];
    }
  }
  const int64_t local = row / a.batch.size, id = row % a.batch.size, to = a.chunk.first * a.batch.size + row;
  WriteGradient(a, P(), a.batch.axes.Split(a.chunk.first + local), local, id, to, sums, any, result, world);
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    if (c < a.channels) result.colors[to * a.batch.channels + a.first_channel + c] = sums[kMoments + c];
  }
}

template <class P, int kC, bool kWide, bool kGeneral>
void Run(Device& device, const TileArguments& a, const PictureGradientBatch& gradient, const Slots& slots,
         const SplatGradient& result) {
  const WorldGradient world = result.world != nullptr ? *result.world : WorldGradient{};
  device.Fill(slots.touched, 0, a.lists.size * a.Parts());
  Launch(BackwardTile<P, kC, kWide, kGeneral>, a.Blocks(), a.Threads(), device.stream(), a, gradient, slots, world);
  LaunchEach(ReduceSplats<P, kC>, a.chunk.count * a.batch.size, device.stream(), a, slots, result, world);
}

template <int kC, bool kWide>
void Differentiate(Device& device, const TileArguments& a, bool general, const PictureGradientBatch& gradient,
                   const Slots& slots, const SplatGradient& result) {
  if (result.absgrads != nullptr) {
    general ? Run<ScreenSplats<true>, kC, kWide, true>(device, a, gradient, slots, result)
            : Run<ScreenSplats<true>, kC, kWide, false>(device, a, gradient, slots, result);
  } else {
    general ? Run<ScreenSplats<false>, kC, kWide, true>(device, a, gradient, slots, result)
            : Run<ScreenSplats<false>, kC, kWide, false>(device, a, gradient, slots, result);
  }
}

template <int kC, bool kWide>
void DifferentiateRays(Device& device, const TileArguments& a, const PictureGradientBatch& gradient, const Slots& slots,
                       const SplatGradient& result) {
  result.world->normals != nullptr ? Run<RaySplats<true>, kC, kWide, true>(device, a, gradient, slots, result)
                                   : Run<RaySplats<false>, kC, kWide, true>(device, a, gradient, slots, result);
}

}  // namespace

void DifferentiateTiles(Device& device, TileArguments a, bool general, const PictureGradientBatch& gradient,
                        const SplatGradient& result) {
  const int64_t channels = a.batch.channels, size = a.lists.size * a.Parts();
  const bool rays = a.batch.AlongRays();
  const int stride = SlotStride(rays ? kRaySlotMoments : kScreenSlotMoments, channels);
  const Slots slots{device.Take<float>(size * stride), device.Take<uint8_t>(size), stride};
  a.first_channel = 0;
  if (rays && result.world->rays != nullptr) {
    const int64_t pixels = a.grid.width * a.grid.height * 6;
    device.Fill(result.world->rays + a.chunk.first * pixels, 0, a.chunk.count * pixels);
  }
  if (channels <= kInlineChannels) {
    a.channels = static_cast<int>(channels);
    if (rays) return DifferentiateRays<kInlineChannels, false>(device, a, gradient, slots, result);
    return channels == 1   ? Differentiate<1, false>(device, a, general, gradient, slots, result)
           : channels <= 3 ? Differentiate<3, false>(device, a, general, gradient, slots, result)
                           : Differentiate<4, false>(device, a, general, gradient, slots, result);
  }
  for (int64_t first = 0; first < channels; first += kWideChannels) {
    a.first_channel = static_cast<int>(first);
    a.channels = static_cast<int>(std::min<int64_t>(kWideChannels, channels - first));
    rays ? DifferentiateRays<kWideChannels, true>(device, a, gradient, slots, result)
         : Differentiate<kWideChannels, true>(device, a, general, gradient, slots, result);
  }
}

}  // namespace jaxsplat::cuda
