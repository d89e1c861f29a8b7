// How fast the inner loops of the rasterizer run on one dense tile that stays in the first-level cache: what the
// kernels could reach if lists, culling, memory and the ends of loops cost nothing. Compiled with the flags of one
// instruction set and the headers of the library.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cpu/prepare.inc.h"
#include "cpu/tile_backward.inc.h"
#include "cpu/tile_forward.inc.h"

namespace {

using namespace jaxsplat;
using namespace jaxsplat::JAXSPLAT_ISA;

using Primitive = Ellipses<false>;

constexpr int kSide = 16, kTileGroups = kSide * kSide / kLanes;

// Splats that hit every pixel of the tile, so transparent that nothing ever ends.
struct DenseTile {
  ImageGrid image{kSide, kSide, kSide};
  BlendRule blend{0.99, 1.0 / 255, 1e-30, false, 0};
  TileJob job{};
  Batch batch;

  DenseTile() {
    job.grid = image;
    job.blend = blend;
    batch.size = kBatch;
    for (int i = 0; i < kBatch; ++i) {
      Gaussian2d g{};
      g.x = 8 + 0.1f * static_cast<float>(i % 7);
      g.y = 8 - 0.1f * static_cast<float>(i % 5);
      g.l11 = 0.05f;
      g.l21 = 0.01f;
      g.l22 = 0.06f;
      g.floor = -6;
      g.opacity = 0.003f;
      for (float& c : g.color) c = 0.5f;
      batch.splats[i] = g;
    }
  }
};

// Pixel-splat pairs a second of one thread that calls f, which visits `pairs` of them, for about so long.
template <class F>
double Rate(double seconds, int64_t pairs, const F& f) {
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  double best = 0;
  const auto start = Clock::now();
  while (elapsed(start) < seconds) {
    const auto begin = Clock::now();
    for (int i = 0; i < 100; ++i) f();
    best = std::max(best, 100 * static_cast<double>(pairs) / elapsed(begin));
  }
  return best;
}

double Forward(double seconds) {
  const DenseTile tile;
  const BlockGrid grid(tile.job);
  const Primitive::Pixels pixels(tile.job, grid);
  const Rule rule(tile.blend);
  return Rate(seconds, kBatch * kSide * kSide, [&] {
    for (int i = 0; i < kTileGroups; ++i) {
      ForwardGroup<Primitive, 3, false> group;
      group.pixels = BeginGroup<false>(tile.job, grid, pixels, i / kGroups, i % kGroups);
      group.last = group.transmittance = Vec(1.0f);
      for (Vec& c : group.color) c = Vec(0.0f);
      BlendGroup<Primitive, 3, false>(tile.job, rule, tile.batch, ~Bits64{0}, pixels.At(i / kGroups, i % kGroups),
                                      group, nullptr);
      asm volatile("" : : "r"(&group) : "memory");
    }
  });
}

double Backward(double seconds) {
  const DenseTile tile;
  const BlockGrid grid(tile.job);
  const Primitive::Pixels pixels(tile.job, grid);
  const Rule rule(tile.blend);
  const GradientSlots slots{};
  constexpr int kRun = 8;
  BackwardGroup<Primitive, 3, false> groups[kTileGroups];
  alignas(64) float raw[kRun * kTileGroups][kLanes], slot[Primitive::kMoments + kInlineChannels];
  return Rate(seconds, kBatch * kSide * kSide, [&] {
    for (int i = 0; i < kTileGroups; ++i) {
      groups[i].pixels = BeginGroup<false>(tile.job, grid, pixels, i / kGroups, i % kGroups);
      for (float& v : groups[i].behind) v = 1;
      for (auto& channel : groups[i].v_color) {
        for (float& v : channel) v = 0.1f;
      }
    }
    for (int first = 0; first < kBatch; first += kRun) {
      int n = 0;
      for (int s = first; s < first + kRun; ++s) {
        for (int i = 0; i < kTileGroups; ++i) {
          n += EvaluateGroup<Primitive>(tile.batch, s, groups[i].pixels, pixels.At(i / kGroups, i % kGroups), raw[n]);
        }
      }
      for (int s = first; s < first + kRun; ++s) {
        const Primitive::Splat splat(tile.batch, s, slots);
        LaneSums<Primitive, 3> sums;
        for (int i = 0; i < kTileGroups; ++i) {
          AccumulateGroup<Primitive, 3, false, false>(rule, splat, splat.g.color, nullptr, 3,
                                                      Vec::Load(raw[(s - first) * kTileGroups + i]),
                                                      pixels.At(i / kGroups, i % kGroups), groups[i], sums, nullptr);
        }
        WriteSlot(sums, nullptr, 3, slot);
        asm volatile("" : : "r"(slot) : "memory");
      }
    }
  });
}

template <class F>
double OnThreads(int64_t threads, const F& f) {
  std::vector<double> rates(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (double& rate : rates) running.emplace_back([&f, &rate] { rate = f(); });
  double sum = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    running[i].join();
    sum += rates[i];
  }
  return sum;
}

}  // namespace

extern "C" {

double simd_limit_forward(int64_t threads, double seconds) {
  return OnThreads(threads, [&] { return Forward(seconds); });
}

double simd_limit_backward(int64_t threads, double seconds) {
  return OnThreads(threads, [&] { return Backward(seconds); });
}

// Pixel-splat pairs of the given lists whose 4x4 block the splat touches and has not ended.
int64_t count_pairs(int64_t n, const float* means, const float* conics, const float* opacities, const int32_t* ids,
                    const int32_t* tile_offsets, int64_t width, int64_t height, int64_t tile_size) {
  const std::vector<float> colors(static_cast<size_t>(n));
  Splats2d splats{};
  splats.size = n;
  splats.channels = 1;
  splats.means = means;
  splats.conics = conics;
  splats.colors = colors.data();
  splats.opacities = opacities;
  const BlendRule blend{0.99, 1.0 / 255, 1e-4, false, 0};
  std::vector<Gaussian2d> prepared(static_cast<size_t>(n));
  PrepareSplats(splats, 0, n, blend.alpha_min, nullptr, prepared.data(), nullptr);
  const ImageGrid image{width, height, tile_size};
  std::vector<TileEntry> list(static_cast<size_t>(tile_offsets[image.tiles()]));
  for (size_t i = 0; i < list.size(); ++i) list[i] = {static_cast<uint32_t>(ids[i]), 0};
  int64_t pairs = 0;
  for (int64_t t = 0; t < image.tiles(); ++t) {
    const TileJob job{image,
                      blend,
                      t,
                      prepared.data(),
                      list.data() + tile_offsets[t],
                      tile_offsets[t + 1] - tile_offsets[t],
                      splats.colors,
                      1,
                      nullptr};
    const BlockGrid grid(job);
    const Primitive::Pixels centres(job, grid);
    const Rule rule(blend);
    Batch batch;
    Bits64 splats_of[kMaxBlocks];
    Composited<false> pixels[kMaxBlocks * kGroups];
    for (int i = 0; i < grid.count * kGroups; ++i) {
      pixels[i] = BeginGroup<false>(job, grid, centres, i / kGroups, i % kGroups);
    }
    for (int64_t start = 0; start < job.size; start += kBatch) {
      batch.Load<false>(job, start);
      batch.SplatsOfBlocks(grid, splats_of);
      for (int b = 0; b < grid.count; ++b) {
        const auto alive = [&] {
          bool any = false;
          for (int k = 0; k < kGroups; ++k) any |= Any(Vec(rule.transmittance_min) < pixels[b * kGroups + k].product);
          return any;
        };
        for (Bits64 todo = splats_of[b]; todo != 0 && alive(); todo &= todo - 1, pairs += kBlockPixels) {
          for (int k = 0; k < kGroups; ++k) {
            alignas(64) float raw[kLanes];
            Composited<false>& group = pixels[b * kGroups + k];
            EvaluateGroup<Primitive>(batch, __builtin_ctzll(todo), group, centres.At(b, k), raw);
            Composite<false>(rule, Min(Vec(rule.alpha_max), Vec::Load(raw)), &group);
          }
        }
      }
    }
  }
  return pairs;
}

}  // extern "C"
