// The forward pass: a block a tile, a thread a pixel; splats come in batches through shared memory.
#include "cuda/tile_forward.h"
#include "cuda/tile_primitives.h"

namespace jaxsplat::cuda {
namespace {

// kC channels a pass: those stored in the splat, or (kWide) a chunk of the caller's array.
template <class P, int kC, bool kWide, bool kGeneral>
__global__ void __launch_bounds__(kThreads, P::kLeastBlocks) ForwardTile(TileArguments a, Picture picture) {
  constexpr int kBatchSize = kWide ? 64 : P::kBatchSize;
  __shared__ typename P::Entry batch[kBatchSize];
  __shared__ float wide_colors[kWide ? kBatchSize : 1][kC];
  const TilePixel me(a);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int batch_size = threads < kBatchSize ? threads : kBatchSize;
  const typename P::Pixel point(a, me);
  Composited<kGeneral> pixels = BeginPixel<kGeneral>(a, me, point.sees);
  Vec transmittance(1.0f), color[kC];
  for (int c = 0; c < kC; ++c) color[c] = Vec(0.0f);
  float hits[kHitChannels];
  P::ClearHits(hits);
  int32_t last = -1;
  bool done = !point.sees;
  const uint32_t end = me.on ? me.range.end : me.range.begin;
  for (uint32_t start = me.range.begin; start < end; start += batch_size) {
    // Also the barrier behind the last use of the batch before.
    if (__syncthreads_count(done) == threads) break;
    const int n = end - start < static_cast<uint32_t>(batch_size) ? static_cast<int>(end - start) : batch_size;
    if (thread < n) P::Load(a, me, start + thread, &batch[thread]);
    if constexpr (kWide) {
      const float* colors = a.batch.colors.At(me.index) + a.first_channel;
      for (int k = thread; k < n * kC; k += threads) {
        const auto row = static_cast<uint32_t>(a.lists.entries[start + k / kC]);
        const int64_t id = row - me.image * a.batch.size;
        wide_colors[k / kC][k % kC] =
            k % kC < a.channels && row != 0xffffffffu ? colors[id * a.batch.channels + k % kC] : 0.0f;
      }
    }
    __syncthreads();
    for (int i = 0; i < n && !done; ++i) {
      const typename P::Evaluation e = P::Evaluate(batch[i], point);
      if (!e.hit || !InFront(a, me, e.id, pixels)) continue;
      const Vec alpha = Min(Vec(a.rule.alpha_max), Vec(e.opacity) * Exp2(e.minus_q));
      const Step step = Composite<kGeneral>(a.rule, alpha, &pixels);
      last = step.blended.v ? e.id : last;
      transmittance = Select(step.blended, pixels.product, transmittance);
      const float* own = kWide ? wide_colors[kWide ? i : 0] : P::Color(batch[i]);
#pragma unroll
      for (int c = 0; c < kC; ++c) color[c] = Fma(step.weight, Vec(own[c]), color[c]);
      P::AddHits(batch[i], e, point, step.weight, hits);
      done = !step.alive.v;
    }
  }
  if (!me.inside) return;
  const int64_t pixel = (a.chunk.first + me.image) * a.grid.width * a.grid.height + me.pixel;
  if (a.first_channel == 0) {
    picture.transmittances[pixel] = transmittance.v;
    picture.last_ids[pixel] = last;
    for (int k = 0; P::kHits && k < kHitChannels; ++k) picture.hits[pixel * kHitChannels + k] = hits[k];
  }
#pragma unroll
  for (int c = 0; c < kC; ++c) {
    if (c < a.channels) picture.colors[pixel * a.batch.channels + a.first_channel + c] = color[c].v;
  }
}

template <int kC, bool kWide>
void Blend(Device& device, const TileArguments& a, bool general, const Picture& picture) {
  using Screen = ScreenSplats<false>;
  Launch(general ? ForwardTile<Screen, kC, kWide, true> : ForwardTile<Screen, kC, kWide, false>, a.Blocks(),
         a.Threads(), device.stream(), a, picture);
}

// Along rays the kernels are compiled for the general rule alone: most of the time goes elsewhere.
template <int kC, bool kWide>
void BlendRays(Device& device, const TileArguments& a, const Picture& picture) {
  Launch(picture.hits != nullptr ? ForwardTile<RaySplats<true>, kC, kWide, true>
                                 : ForwardTile<RaySplats<false>, kC, kWide, true>,
         a.Blocks(), a.Threads(), device.stream(), a, picture);
}

}  // namespace

void BlendTiles(Device& device, TileArguments a, bool general, const Picture& picture) {
  const int64_t channels = a.batch.channels;
  a.first_channel = 0;
  if (channels <= kInlineChannels) {
    a.channels = static_cast<int>(channels);
    if (a.batch.AlongRays()) return BlendRays<kInlineChannels, false>(device, a, picture);
    return channels == 1   ? Blend<1, false>(device, a, general, picture)
           : channels <= 3 ? Blend<3, false>(device, a, general, picture)
                           : Blend<4, false>(device, a, general, picture);
  }
  for (int64_t first = 0; first < channels; first += kWideChannels) {
    a.first_channel = static_cast<int>(first);
    a.channels = static_cast<int>(std::min<int64_t>(kWideChannels, channels - first));
    a.batch.AlongRays() ? BlendRays<kWideChannels, true>(device, a, picture)
                        : Blend<kWideChannels, true>(device, a, general, picture);
  }
}

}  // namespace jaxsplat::cuda
