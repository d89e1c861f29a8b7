// Forward and backward pass over one tile. Included by one source file per instruction set.
//
// Forward, block by block: transmittance and colors stay in registers. Backward, splat by splat: its gradient is summed
// over the whole tile in registers and written once.
#include <cstddef>
#include <cstdint>

#include "core/simd.h"
#include "cpu/prepare.inc.h"
#include "cpu/tile_batch.h"
#include "cpu/tile_kernels.h"
#include "math/compositing.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// kD is the number of channels if it is at most kInlineChannels, else 0: then colors are read from the caller's array.
template <int kD>
inline const float* ColorOf(const TileJob& job, const Gaussian2d& g) {
  if constexpr (kD > 0) return g.color;
  return job.colors + int64_t{g.id} * job.channels;
}

// Splats whose colors still have to be added to a block of more than kInlineChannels channels: with a few at a time,
// each accumulator is loaded and stored once for all of them.
struct ColorQueue {
  static constexpr int kSize = 8;
  Vec weight[kSize];
  const float* color[kSize];
  int size = 0;

  void Flush(float* accumulators, int64_t channels) {
    for (int64_t c = 0; c < channels; ++c) {
      Vec sum = Vec::Load(accumulators + c * kBlockPixels);
      for (int i = 0; i < size; ++i) sum = Fma(weight[i], Vec(color[i][c]), sum);
      sum.Store(accumulators + c * kBlockPixels);
    }
    size = 0;
  }
};

template <int kD>
struct ForwardBlock {
  Vec x, y, last;
  Vec transmittance;  // behind the last splat that was blended
  Composited pixels;
  Vec color[kD > 0 ? kD : 1];
};

// Blends the splats of `todo` into one block. Returns false when all pixels of the block have ended.
template <int kD, bool kGeneral>
bool BlendBlock(const TileJob& job, const Rule& rule, const Batch& batch, uint64_t todo, ForwardBlock<kD>& state,
                float* accumulators) {
  // Copies, so that they can stay in registers.
  const Vec x = state.x, y = state.y;
  Vec last = state.last, transmittance = state.transmittance;
  Composited pixels = state.pixels;
  Vec color[kD > 0 ? kD : 1];
  for (int c = 0; c < kD; ++c) color[c] = state.color[c];
  ColorQueue queue;
  bool alive = true;
  for (; todo != 0; todo &= todo - 1) {
    const Gaussian2d& g = batch.splats[__builtin_ctzll(todo)];
    const Evaluation2d e = Evaluate(g, x, y);
    if (!Any(e.hit)) continue;
    const Vec alpha = Keep(e.hit, Min(Vec(rule.alpha_max), Vec(g.opacity) * Exp2(e.minus_q)));
    const Step step = Composite<kGeneral>(rule, alpha, e.hit, &pixels);
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
    if (!Any(step.alive)) {
      alive = false;
      break;
    }
  }
  if constexpr (kD == 0) queue.Flush(accumulators, job.channels);
  state.last = last;
  state.transmittance = transmittance;
  state.pixels = pixels;
  for (int c = 0; c < kD; ++c) state.color[c] = color[c];
  return alive;
}

template <int kD, bool kGeneral>
void ForwardTile(const TileJob& job, const Picture& picture) {
  const BlockGrid grid(job);
  const Rule rule(job.blend);
  ForwardBlock<kD> blocks[kMaxBlocks];
  uint64_t alive = 0;
  const int32_t none = -1;
  float no_id;
  __builtin_memcpy(&no_id, &none, sizeof(no_id));
  for (int b = 0; b < grid.count; ++b) {
    ForwardBlock<kD>& block = blocks[b];
    const Mask inside = grid.Centres(b, &block.x, &block.y);
    block.pixels = Composited(inside);
    block.transmittance = Vec(1.0f);
    block.last = Vec(no_id);
    for (Vec& c : block.color) c = Vec(0.0f);
    if (Any(inside)) alive |= uint64_t{1} << b;
  }
  const int64_t block_floats = kBlockPixels * job.channels;
  if constexpr (kD == 0)
    __builtin_memset(job.scratch, 0, sizeof(float) * static_cast<size_t>(grid.count * block_floats));
  Batch batch;
  for (int64_t start = 0; start < job.size && alive != 0; start += kBatch) {
    batch.Load(job, grid, start);
    for (uint64_t left = alive; left != 0; left &= left - 1) {
      const int b = __builtin_ctzll(left);
      if (batch.touching[b] == 0) continue;
      if (!BlendBlock<kD, kGeneral>(job, rule, batch, batch.touching[b], blocks[b], job.scratch + b * block_floats)) {
        alive &= ~(uint64_t{1} << b);
      }
    }
  }
  for (int b = 0; b < grid.count; ++b) {
    grid.Store(picture.transmittances, 1, b, blocks[b].transmittance);
    grid.Store(picture.last_ids, 1, b, blocks[b].last);
    for (int64_t c = 0; c < job.channels; ++c) {
      const Vec color =
          kD > 0 ? blocks[b].color[kD > 0 ? c : 0] : Vec::Load(job.scratch + b * block_floats + c * kBlockPixels);
      grid.Store(picture.colors + c, job.channels, b, color);
    }
  }
}

struct BackwardBlock {
  Vec x, y, behind;
  Composited pixels;
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

// One splat at one block. `v_colors` holds the block's cotangents [channels, 16]; `more` is where the color gradients
// are summed, in the same layout, if kD is 0. Sets *any if the splat hits a pixel. Returns false when all pixels of the
// block have ended.
template <int kD, bool kGeneral, bool kAbs>
JAXSPLAT_INLINE bool AccumulateBlock(const Rule& rule, const Gaussian2d& g, const float* color, const float* conic,
                                     const float* v_colors, int64_t channels, BackwardBlock& s,
                                     LaneSums<kD, kAbs>& sums, float* more, bool* any) {
  const Evaluation2d e = Evaluate(g, s.x, s.y);
  if (!Any(e.hit)) return true;
  *any = true;
  const Vec raw = Vec(g.opacity) * Exp2(e.minus_q);
  const Vec alpha = Keep(e.hit, Min(Vec(rule.alpha_max), raw));
  const Step step = Composite<kGeneral>(rule, alpha, e.hit, &s.pixels);
  Vec color_dot(0.0f);
  if constexpr (kD > 0) {
    for (int c = 0; c < kD; ++c) {
      const Vec v = Vec::Load(v_colors + c * kBlockPixels);
      color_dot = c == 0 ? Vec(color[c]) * v : Fma(Vec(color[c]), v, color_dot);
      sums.color[c] = Fma(step.weight, v, sums.color[c]);
    }
  } else {
    for (int64_t c = 0; c < channels; ++c) {
      const Vec v = Vec::Load(v_colors + c * kBlockPixels);
      color_dot = Fma(Vec(color[c]), v, color_dot);
      Fma(step.weight, v, Vec::Load(more + c * kBlockPixels)).Store(more + c * kBlockPixels);
    }
  }
  // Where the opacity is clamped, the geometry has no influence.
  const Vec m = CompositeVjp(step, raw <= Vec(rule.alpha_max), alpha, color_dot, &s.behind);
  const Vec mx = m * e.dx, my = m * e.dy;
  sums.m = sums.m + m;
  sums.x = sums.x + mx;
  sums.y = sums.y + my;
  sums.xx = Fma(mx, e.dx, sums.xx);
  sums.xy = Fma(mx, e.dy, sums.xy);
  sums.yy = Fma(my, e.dy, sums.yy);
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
      const auto color = [&](int64_t k) { return c + k < channels ? Vec::Load(more + (c + k) * kBlockPixels) : zero; };
      SumFour(color(0), color(1), color(2), color(3), slot + kMomentSlots + c);
    }
  }
}

// Sets up one block: its cotangents are copied to v_colors [channels, 16]. Returns whether it has pixels in the image.
inline bool LoadBlock(const TileJob& job, const BlockGrid& grid, const PictureGradient& gradient,
                      const GradientSlots& slots, int b, BackwardBlock& s, float* v_colors) {
  const Mask inside = grid.Centres(b, &s.x, &s.y);
  s.pixels = Composited(inside);
  s.behind = Vec(0.0f);
  for (int64_t c = 0; c < slots.channels; ++c) {
    const int64_t channel = slots.first_channel + c;
    const Vec v = grid.Load(gradient.v_colors + channel, job.channels, b);
    v.Store(v_colors + c * kBlockPixels);
    s.behind = Fma(v, grid.Load(gradient.colors + channel, job.channels, b), s.behind);
  }
  if (slots.first_pass) {
    s.behind = Fma(grid.Load(gradient.transmittances, 1, b), grid.Load(gradient.v_transmittances, 1, b), s.behind);
  }
  return Any(inside);
}

template <int kD, bool kGeneral, bool kAbs>
void BackwardTile(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  const BlockGrid grid(job);
  const Rule rule(job.blend);
  const int64_t channels = kD > 0 ? kD : slots.channels;
  const int64_t block_floats = kBlockPixels * channels;
  BackwardBlock blocks[kMaxBlocks];
  uint64_t alive = 0;
  for (int b = 0; b < grid.count; ++b) {
    if (LoadBlock(job, grid, gradient, slots, b, blocks[b], job.scratch + b * block_floats)) alive |= uint64_t{1} << b;
  }
  // Behind the cotangents of the blocks.
  float* const more = job.scratch + grid.count * block_floats;
  Batch batch;
  for (int64_t start = 0; start < job.size && alive != 0; start += kBatch) {
    batch.Load(job, grid, start);
    uint64_t blocks_of[kBatch] = {};
    for (int b = 0; b < grid.count; ++b) {
      for (uint64_t left = batch.touching[b]; left != 0; left &= left - 1) {
        blocks_of[__builtin_ctzll(left)] |= uint64_t{1} << b;
      }
    }
    for (int i = 0; i < batch.size; ++i) {
      uint64_t left = blocks_of[i] & alive;
      if (left == 0) continue;
      const Gaussian2d& g = batch.splats[i];
      const float* conic = slots.conics + int64_t{g.id} * 3;
      const float* color = ColorOf<kD>(job, g) + slots.first_channel;
      LaneSums<kD, kAbs> sums;
      if constexpr (kD == 0) __builtin_memset(more, 0, sizeof(float) * static_cast<size_t>(block_floats));
      bool any = false;
      for (; left != 0; left &= left - 1) {
        const int b = __builtin_ctzll(left);
        if (!AccumulateBlock<kD, kGeneral, kAbs>(rule, g, color, conic, job.scratch + b * block_floats, channels,
                                                 blocks[b], sums, more, &any)) {
          alive &= ~(uint64_t{1} << b);
        }
      }
      if (!any) continue;
      const uint32_t slot = slots.slots[start + i];
      WriteSlot(sums, more, channels, slots.values + slot * slots.stride);
      slots.touched[slot] = 1;
    }
  }
}

bool IsGeneral(const BlendRule& rule) { return rule.blend_last || rule.max_contributors > 0; }

template <int kD>
void ForwardD(const TileJob& job, const Picture& picture) {
  IsGeneral(job.blend) ? ForwardTile<kD, true>(job, picture) : ForwardTile<kD, false>(job, picture);
}

void Forward(const TileJob& job, const Picture& picture) {
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

template <int kD>
void BackwardD(const TileJob& job, const PictureGradient& gradient, const GradientSlots& slots) {
  if (IsGeneral(job.blend)) {
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

extern const TileKernels kTileKernels;
#define JAXSPLAT_STRING_(x) #x
#define JAXSPLAT_STRING(x) JAXSPLAT_STRING_(x)
const TileKernels kTileKernels = {
    JAXSPLAT_STRING(JAXSPLAT_ISA), PrepareSplats, EllipseRows, EllipseSpans, Forward, Backward};

}  // namespace jaxsplat::JAXSPLAT_ISA
