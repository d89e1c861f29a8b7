// The backward pass, front to back like the forward one. A splat's gradient is summed over the lanes of each warp, then
// over the warps of the block, then over the tiles, always in the same order.
#include "cuda/tile_backward.h"
#include "cuda/warp_sum.h"

namespace jaxsplat::cuda {
namespace {

// Splats that a block works on between barriers: one bit each of a word.
constexpr int kRun = 32;

constexpr int kMomentSlots = sizeof(Moments2d) / sizeof(float);

// A slot holds Moments2d and the gradients of the colors, and is written only if touched[slot] becomes 1. The parts of
// a tile have slots of their own, one after another.
struct Slots {
  float* values;  // [slots * parts, stride]
  uint8_t* touched;
  int stride;
};

template <int kC, bool kWide, bool kGeneral, bool kAbs>
__global__ void __launch_bounds__(kThreads) BackwardTile(TileArguments a, PictureGradientBatch gradient, Slots slots) {
  constexpr int kMoments = kAbs ? 8 : 6, kSums = kMoments + kC;
  __shared__ PackedSplat batch[kRun];
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
  const Vec x(static_cast<float>(me.x) + 0.5f), y(static_cast<float>(me.y) + 0.5f), alpha_max(a.rule.alpha_max);
  Composited<kGeneral> pixels = BeginPixel<kGeneral>(a, me);
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
  bool done = !me.inside;
  for (uint32_t start = me.range.begin; start < me.range.end; start += kRun) {
    // Also the barrier behind the last use of the run before.
    if (__syncthreads_count(done) == threads) break;
    const int n = me.range.end - start < kRun ? static_cast<int>(me.range.end - start) : kRun;
    if (thread < n) {
      LoadEntry(a.lists, start + thread, &batch[thread]);
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
      const Gaussian2d g = batch[i].Unpack();
      const Evaluation2d e = Evaluate(g, x, y);
      const Mask hit{e.hit.v && !done && InFront(a, me, g.id, pixels)};
      if (!__any_sync(kAllLanes, hit.v)) continue;
      const Vec raw = Keep(hit, Vec(g.opacity) * Exp2(e.minus_q)), alpha = Min(alpha_max, raw);
      const Step step = Composite<kGeneral>(a.rule, alpha, &pixels);
      float sums[kSums];
      const float* own = kWide ? wide_colors[kWide ? i : 0] : &batch[i].color.x;
      Vec color_dot(0.0f);
#pragma unroll
      for (int c = 0; c < kC; ++c) {
        color_dot = c == 0 ? Vec(own[c]) * v_color[c] : Fma(Vec(own[c]), v_color[c], color_dot);
        sums[kMoments + c] = (step.weight * v_color[c]).v;
      }
      if constexpr (kWide && kAbs) {
        color_dot = Vec(0.0f);
        const float* all = colors + g.id * all_channels;
        for (int64_t c = 0; hit.v && c < all_channels; ++c) color_dot = Fma(Vec(all[c]), Vec(v_colors[c]), color_dot);
      }
      Vec m = ClipAlphaGradient<kGeneral>(rule, alpha, CompositeVjp(step, alpha, color_dot, &behind));
      // Where the opacity is clamped, the geometry has no influence.
      m = Keep(raw <= alpha_max & Mask{geometry}, m);
      const Vec mx = m * e.dx, my = m * e.dy;
      sums[0] = m.v;
      sums[1] = mx.v;
      sums[2] = my.v;
      sums[3] = (mx * e.dx).v;
      sums[4] = (mx * e.dy).v;
      sums[5] = (my * e.dy).v;
      if constexpr (kAbs) {
        const float* q = conics[i];
        sums[6] = Abs(Fma(Vec(q[0]), mx, Vec(q[1]) * my)).v;
        sums[7] = Abs(Fma(Vec(q[1]), mx, Vec(q[2]) * my)).v;
      }
      SumLanes<kSums>(sums, lane);
      if (sum_index >= 0) partial[warp][i][sum_index] = sums[0];
      warp_hits |= 1u << i;
      done = done || !step.alive.v;
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
      slots.values[slot * slots.stride + (j < kMoments ? j : kMomentSlots + j - kMoments)] = sum;
      if (j == 0) slots.touched[slot] = 1;
    }
  }
}

// The gradient of each splat from its slots, in the order of its tiles. kC is the number of channels of a slot.
template <int kC>
__global__ void __launch_bounds__(kThreads)
    ReduceSplats(TileArguments a, Slots slots, SplatGradient result, bool absgrad) {
  const int64_t i = ThreadIndex();
  if (i >= a.chunk.count * a.batch.size) return;
  const int64_t row = a.lists.order == nullptr ? i : a.lists.order[i];
  const int64_t begin = i > 0 ? a.lists.slot_ends[i - 1] : 0, end = a.lists.slot_ends[i];
  float sums[kMomentSlots + kC] = {};
  bool any = false;
  for (int64_t slot = begin * a.Parts(); slot < end * a.Parts(); ++slot) {
    if (slots.touched[slot] == 0) continue;
    any = true;
    const float* values = slots.values + slot * slots.stride;
#pragma unroll
    for (int k = 0; k < kMomentSlots + kC; ++k) {
      if (absgrad || k < 6 || k >= kMomentSlots) sums[k] += values[k];
    }
  }
  const ImageIndex image = a.batch.axes.Split(a.chunk.first + row / a.batch.size);
  const int64_t id = row % a.batch.size, to = a.chunk.first * a.batch.size + row;
  const Moments2d moments{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5], sums[6], sums[7]};
  // The conic and the opacity of a splat that hits no pixel may be anything.
  const GaussianGradient2d g =
      any ? EvaluateVjp(moments, a.batch.conics.At(image) + id * 3, a.batch.opacities.At(image)[id])
          : GaussianGradient2d{};
  // Each chunk of channels adds to what the ones before it left.
  const auto write = [&](float* at, float value) { *at = a.first_channel == 0 ? value : *at + value; };
  for (int k = 0; k < 2; ++k) write(result.means + to * 2 + k, g.mean[k]);
  for (int k = 0; k < 3; ++k) write(result.conics + to * 3 + k, g.conic[k]);
  write(result.opacities + to, g.opacity);
  if (absgrad) {
    write(result.absgrads + to * 2, moments.abs_x);
    write(result.absgrads + to * 2 + 1, moments.abs_y);
  }
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    if (c < a.channels) result.colors[to * a.batch.channels + a.first_channel + c] = sums[kMomentSlots + c];
  }
}

template <int kC, bool kWide>
void Differentiate(Device& device, const TileArguments& a, bool general, const PictureGradientBatch& gradient,
                   const Slots& slots, const SplatGradient& result) {
  const bool absgrad = result.absgrads != nullptr;
  const auto kernel = general
                          ? (absgrad ? BackwardTile<kC, kWide, true, true> : BackwardTile<kC, kWide, true, false>)
                          : (absgrad ? BackwardTile<kC, kWide, false, true> : BackwardTile<kC, kWide, false, false>);
  device.Fill(slots.touched, 0, a.lists.size * a.Parts());
  Launch(kernel, a.Blocks(), a.Threads(), device.stream(), a, gradient, slots);
  LaunchEach(ReduceSplats<kC>, a.chunk.count * a.batch.size, device.stream(), a, slots, result, absgrad);
}

}  // namespace

void DifferentiateTiles(Device& device, TileArguments a, bool general, const PictureGradientBatch& gradient,
                        const SplatGradient& result) {
  const int64_t channels = a.batch.channels, size = a.lists.size * a.Parts();
  const int stride = kMomentSlots + (channels <= kInlineChannels ? kInlineChannels : kWideChannels);
  const Slots slots{device.Take<float>(size * stride), device.Take<uint8_t>(size), stride};
  a.first_channel = 0;
  if (channels <= kInlineChannels) {
    a.channels = static_cast<int>(channels);
    return channels == 1   ? Differentiate<1, false>(device, a, general, gradient, slots, result)
           : channels <= 3 ? Differentiate<3, false>(device, a, general, gradient, slots, result)
                           : Differentiate<4, false>(device, a, general, gradient, slots, result);
  }
  for (int64_t first = 0; first < channels; first += kWideChannels) {
    a.first_channel = static_cast<int>(first);
    a.channels = static_cast<int>(std::min<int64_t>(kWideChannels, channels - first));
    Differentiate<kWideChannels, true>(device, a, general, gradient, slots, result);
  }
}

}  // namespace jaxsplat::cuda
