// What a thread evaluates of each splat in shared memory, and sums over its pixels, as a policy: ellipses on the
// screen, or splats along rays. The traversal and the blending around it are the same.
#ifndef JAXSPLAT_CUDA_TILE_PRIMITIVES_H_
#define JAXSPLAT_CUDA_TILE_PRIMITIVES_H_

#include "cuda/rasterize_gaussians_3d.h"
#include "cuda/tile_pixels.h"
#include "math/gaussian_world_vjp.h"
#include "math/tile_extents.h"

namespace jaxsplat::cuda {

// kMoments values are summed, and kSlotMoments of them have room in a slot.
template <bool kAbsolute>
struct ScreenSplats {
  static constexpr bool kRays = false, kHits = false, kAbs = kAbsolute;
  static constexpr int kMoments = kAbs ? 8 : 6, kSlotMoments = kScreenSlotMoments;
  static constexpr int kBatchSize = kThreads, kLeastBlocks = 0;
  using Entry = PackedSplat;

  struct Pixel {
    Vec x, y;
    bool sees;
    __device__ Pixel(const TileArguments&, const TilePixel& me)
        : x(static_cast<float>(me.x) + 0.5f), y(static_cast<float>(me.y) + 0.5f), sees(me.inside) {}
  };
  struct Evaluation {
    Vec dx, dy, minus_q;
    bool hit;
    float opacity;
    int32_t id;
  };
  static __device__ Evaluation Evaluate(const Entry& entry, const Pixel& pixel) {
    const Gaussian2d g = entry.Unpack();
    const Evaluation2d e = JAXSPLAT_ISA::Evaluate(g, pixel.x, pixel.y);
    return {e.dx, e.dy, e.minus_q, e.hit.v, g.opacity, g.id};
  }
  static __device__ const float* Color(const Entry& entry) { return &entry.color.x; }
  static __device__ void Load(const TileArguments& a, const TilePixel&, int64_t entry, Entry* to) {
    LoadEntry(a.lists, entry, to);
  }
  static __device__ void ClearHits(float*) {}
  static __device__ void AddHits(const Entry&, const Evaluation&, const Pixel&, const Vec&, float*) {}

  // What a pixel knows and gathers in the backward pass: nothing.
  struct PixelGradient {
    __device__ PixelGradient(const TileArguments&, const PictureGradientBatch&, const WorldGradient&, const TilePixel&,
                             Vec*) {}
    __device__ void Store(const TileArguments&, const WorldGradient&, const TilePixel&) const {}
  };
  // One splat at one pixel in the backward pass.
  struct Terms {
    __device__ Terms(const Entry&, const Evaluation&) {}
    __device__ void AddHits(const Entry&, const Pixel&, const Vec&, const PixelGradient&, Vec*) {}
    __device__ void Sum(const Entry&, const Evaluation& e, const Vec& m, const Vec&, const float* conic, PixelGradient&,
                        float* sums) {
      const Vec mx = m * e.dx, my = m * e.dy;
      sums[0] = m.v;
      sums[1] = mx.v;
      sums[2] = my.v;
      sums[3] = (mx * e.dx).v;
      sums[4] = (mx * e.dy).v;
      sums[5] = (my * e.dy).v;
      if constexpr (kAbs) {
        sums[6] = Abs(Fma(Vec(conic[0]), mx, Vec(conic[1]) * my)).v;
        sums[7] = Abs(Fma(Vec(conic[1]), mx, Vec(conic[2]) * my)).v;
      }
    }
  };
};

// The blocks of a part of a tile that the ellipse of a splat touches, one bit each: along rays a splat is tried there
// alone, so that it is seen where the kernels for CPUs see it.
__device__ inline uint32_t BlocksOf(const TileArguments& a, const Gaussian2d& g, int tile_x, int tile_y, int part) {
  const int along = a.PartSide() / kBlockSide, parts_along = a.PartsAlong();
  const int tile_size = static_cast<int>(a.grid.tile_size);
  const float left_edge = static_cast<float>(tile_x * tile_size + part % parts_along * a.PartSide()) + 0.5f,
              top_edge = static_cast<float>(tile_y * tile_size + part / parts_along * a.PartSide()) + 0.5f;
  constexpr float kLast = kBlockSide - 1;
  uint32_t blocks = 0;
  for (int row = 0; row < along; ++row) {
    const float y0 = top_edge + static_cast<float>(row * kBlockSide) - g.y, y1 = y0 + kLast;
    if (!(y0 <= g.half_height + kExtentMargin) || !(-g.half_height - kExtentMargin <= y1)) continue;
    float left, right;
    BandExtent(g.half_height, g.shear_y, g.l21, g.l22, g.inv_l11, g.level, y0, y1, &left, &right);
    left = left + g.x - kExtentMargin;
    right = right + g.x + kExtentMargin;
    for (int column = 0; column < along; ++column) {
      const float x0 = left_edge + static_cast<float>(column * kBlockSide);
      if (x0 <= right && left <= x0 + kLast) blocks |= 1u << (row * along + column);
    }
  }
  return blocks;
}

template <bool kWithHits>
struct RaySplats {
  static constexpr bool kRays = true, kHits = kWithHits, kAbs = false;
  static constexpr int kMoments = kHits ? 13 : 10, kSlotMoments = kRaySlotMoments;
  static constexpr int kBatchSize = 64, kLeastBlocks = 2;  // else the compiler spills for the sake of a third block

  struct Entry {
    GaussianWorld world;
    PackedSplat splat;
    uint32_t blocks;
  };

  // A ray from the anchor, or relative to it. A pixel that sees nothing gets some ray, so that all stays finite.
  struct Pixel : Rays {
    bool sees, moving;
    int block;
    __device__ Pixel(const TileArguments& a, const TilePixel& me) {
      const float* const rays = a.batch.world.rays.At(me.index);
      const float* const ray = rays + (me.inside ? me.pixel * 6 : 0);
      const float* const anchor = rays + a.lists.anchors[me.image] * 6;
      sees = me.inside && Sees(ray);
      bool elsewhere = false;
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        direction[k] = Vec(sees ? ray[k + 3] : k == 2 ? 1.0f : 0.0f);
        origin[k] = Vec(sees ? ray[k] - anchor[k] : 0.0f);
        elsewhere = elsewhere || origin[k].v != 0;
      }
      block = static_cast<int>(threadIdx.x) / kBlockPixels;
      // The same for the whole block of threads.
      moving = __syncthreads_count(elsewhere) > 0;
    }
  };
  struct Evaluation {
    CanonicalRay ray;
    Vec minus_q;
    bool hit;
    float opacity;
    int32_t id;
  };
  static __device__ Evaluation Evaluate(const Entry& entry, const Pixel& pixel) {
    Evaluation e;
    e.opacity = entry.splat.falloff.z;
    e.id = __float_as_int(entry.splat.falloff.w);
    e.hit = false;
    if ((entry.blocks >> pixel.block & 1) == 0) return e;
    e.ray = pixel.moving ? Canonical<true>(entry.world, pixel) : Canonical<false>(entry.world, pixel);
    e.minus_q = MinusQ(e.ray);
    e.hit = entry.splat.falloff.y <= e.minus_q.v && 0.0f < e.ray.front.v;
    return e;
  }
  static __device__ const float* Color(const Entry& entry) { return &entry.splat.color.x; }
  static __device__ void Load(const TileArguments& a, const TilePixel& me, int64_t entry, Entry* to) {
    LoadEntry(a.lists, entry, &to->splat);
    const auto row = static_cast<uint32_t>(a.lists.entries[entry]);
    to->blocks = 0;
    if (row == 0xffffffffu) return;
    const Gaussian2d g = a.lists.splats[row];
    const int tiles_x = static_cast<int>(a.grid.tiles_x());
    to->blocks = BlocksOf(a, g, me.tile % tiles_x, me.tile / tiles_x, me.part);
    to->world = a.lists.world[row];
  }

  // Sums of the forward pass: weight times distance, and times normal.
  static __device__ void ClearHits(float* hits) {
    for (int k = 0; kHits && k < kHitChannels; ++k) hits[k] = 0;
  }
  static __device__ void AddHits(const Entry& entry, const Evaluation& e, const Pixel& pixel, const Vec& weight,
                                 float* hits) {
    if constexpr (kHits) {
      hits[0] = Fma(weight, e.ray.front * e.ray.inverse, Vec(hits[0])).v;
      const Vec turned = weight * Facing(entry.world, pixel);
#pragma unroll
      for (int k = 0; k < 3; ++k) hits[k + 1] = Fma(turned, Vec(entry.world.normal[k]), Vec(hits[k + 1])).v;
    }
  }

  // A pixel's cotangents of the hits, and its gradient of the ray.
  struct PixelGradient {
    Vec v_hits[kHits ? kHitChannels : 1], v_ray[6];
    bool wanted;

    __device__ Vec VHit(int k) const { return v_hits[k]; }
    __device__ Vec VRay(int k) const { return v_ray[k]; }
    __device__ void SetVRay(int k, const Vec& value) { v_ray[k] = value; }

    // Adds the product of the cotangents with what the forward pass found.
    __device__ PixelGradient(const TileArguments& a, const PictureGradientBatch& gradient, const WorldGradient& world,
                             const TilePixel& me, Vec* behind)
        : wanted(world.rays != nullptr) {
      for (Vec& v : v_hits) v = Vec(0.0f);
      for (Vec& v : v_ray) v = Vec(0.0f);
      if (!kHits || a.first_channel > 0 || !me.inside) return;
#pragma unroll
      for (int k = 0; k < (kHits ? kHitChannels : 0); ++k) {
        v_hits[k] = Vec(gradient.v_hits.At(me.index)[me.pixel * kHitChannels + k]);
        *behind = *behind + v_hits[k] * Vec(gradient.hits.At(me.index)[me.pixel * kHitChannels + k]);
      }
    }
    // Adds to what is there: each chunk of channels has its part.
    __device__ void Store(const TileArguments& a, const WorldGradient& world, const TilePixel& me) const {
      if (!wanted || !me.inside) return;
      float* const to = world.rays + ((a.chunk.first + me.image) * a.grid.width * a.grid.height + me.pixel) * 6;
#pragma unroll
      for (int k = 0; k < 6; ++k) to[k] += v_ray[k].v;
    }
  };
  struct Terms {
    WorldPoint point;
    WorldSums<kHits> moments;
    __device__ Terms(const Entry&, const Evaluation& e) : point(e.ray) {}
    // Adds the hits' part of the linear form's value.
    __device__ void AddHits(const Entry& entry, const Pixel& pixel, const Vec& weight, const PixelGradient& own,
                            Vec* value) {
      if constexpr (kHits) *value = *value + moments.AddHits(entry.world, pixel, point, weight, own);
    }
    __device__ void Sum(const Entry& entry, const Evaluation&, const Vec& m, const Vec& weight, const float*,
                        PixelGradient& own, float* sums) {
      moments.Add(entry.world, point, m, weight, own.wanted, own);
      sums[0] = moments.m.v;
#pragma unroll
      for (int k = 0; k < 3; ++k) sums[k + 1] = moments.v[k].v;
      sums[4] = moments.xx.v;
      sums[5] = moments.xy.v;
      sums[6] = moments.xz.v;
      sums[7] = moments.yy.v;
      sums[8] = moments.yz.v;
      sums[9] = moments.zz.v;
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        if constexpr (kHits) sums[10 + k] = moments.normal[k].v;
      }
    }
  };
};

}  // namespace jaxsplat::cuda

#endif  // JAXSPLAT_CUDA_TILE_PRIMITIVES_H_
