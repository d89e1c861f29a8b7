// What the passes over a tile evaluate, as a policy: ellipses on the screen, or splats along rays. The traversal, the
// culling and the blending around it are the same.
#ifndef JAXSPLAT_CPU_PRIMITIVES_INC_H_
#define JAXSPLAT_CPU_PRIMITIVES_INC_H_

#include <cstddef>
#include <cstdint>

#include "core/simd.h"
#include "cpu/tile_batch.h"
#include "cpu/tile_kernels.h"
#include "math/compositing.h"
#include "math/gaussian_2d.h"
#include "math/gaussian_world_vjp.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

template <bool kAbs>
struct Ellipses {
  static constexpr bool kHits = false;
  static constexpr int kMoments = sizeof(Moments2d) / sizeof(float);
  using Batch = JAXSPLAT_ISA::Batch;

  struct Pixel {
    Vec x, y;
  };
  struct Pixels : PixelCentres {
    Pixels(const TileJob&, const BlockGrid& grid) : PixelCentres(grid) {}
    JAXSPLAT_INLINE Pixel At(int block, int group) const { return {x(block), y(block, group)}; }
  };

  static JAXSPLAT_INLINE Mask Evaluate(const Batch& batch, int i, const Pixel& pixel, Vec* minus_q) {
    const Evaluation2d e = JAXSPLAT_ISA::Evaluate(batch.splats[i], pixel.x, pixel.y);
    *minus_q = e.minus_q;
    return e.hit;
  }

  // Sums of the forward pass beside the colors: none.
  struct Hits {
    JAXSPLAT_INLINE void Add(const Batch&, int, const Pixel&, const Vec&, const Step&) {}
  };
  // What a group's pixels know and gather in the backward pass: nothing.
  struct GroupGradient {
    void Clear() {}
    void Store(const BlockGrid&, int, int, float*) const {}
  };

  // One splat in the backward pass.
  struct Splat {
    const Gaussian2d& g;
    const float* conic;
    Splat(const Batch& batch, int i, const GradientSlots& slots)
        : g(batch.splats[i]), conic(slots.conics + int64_t{g.id} * 3) {}
  };
  struct Point {
    Vec dx, dy;
    JAXSPLAT_INLINE Point(const Splat& splat, const Pixel& pixel)
        : dx(pixel.x - Vec(splat.g.x)), dy(pixel.y - Vec(splat.g.y)) {}
  };
  // Moments2d, lane by lane.
  struct Sums {
    Vec m, x, y, xx, xy, yy, abs_x, abs_y;
    JAXSPLAT_INLINE Sums() { m = x = y = xx = xy = yy = abs_x = abs_y = Vec(0.0f); }

    JAXSPLAT_INLINE void Add(const Splat& splat, const Point& at, const Vec& v, const Vec&, GroupGradient&) {
      const Vec mx = v * at.dx, my = v * at.dy;
      m = m + v;
      x = x + mx;
      y = y + my;
      xx = Fma(mx, at.dx, xx);
      xy = Fma(mx, at.dy, xy);
      yy = Fma(my, at.dy, yy);
      if constexpr (kAbs) {
        const float* const conic = splat.conic;
        abs_x = abs_x + Abs(Fma(Vec(conic[0]), mx, Vec(conic[1]) * my));
        abs_y = abs_y + Abs(Fma(Vec(conic[1]), mx, Vec(conic[2]) * my));
      }
    }
    JAXSPLAT_INLINE void Write(float* slot) const {
      const Vec zero(0.0f);
      SumFour(m, x, y, xx, slot);
      SumFour(xy, yy, kAbs ? abs_x : zero, kAbs ? abs_y : zero, slot + 4);
    }
  };
};

// Whether any ray of the tile starts elsewhere than at the anchor.
inline bool OriginsDiffer(const TileJob& job) {
  const BlockGrid grid(job);
  bool differ = false;
  for (int b = 0; b < grid.count; ++b) {
    grid.ForEachPixel(b, [&](int, int64_t pixel) {
      const float* const ray = job.rays + pixel * 6;
      const bool same = ray[0] == job.anchor[0] && ray[1] == job.anchor[1] && ray[2] == job.anchor[2];
      differ |= !same && Sees(ray);
    });
  }
  return differ;
}

// kMoving: some rays do not start at the anchor. kWithHits: distances and normals are asked for.
template <bool kMoving, bool kWithHits>
struct RaySplats {
  static constexpr bool kHits = kWithHits;
  static constexpr int kMoments = kHits ? kHitMomentSlots : kWorldMomentSlots;

  struct Batch : JAXSPLAT_ISA::Batch {
    GaussianWorld world[kBatch];

    template <bool kGeneral>
    void Load(const TileJob& job, int64_t start) {
      JAXSPLAT_ISA::Batch::Load<kGeneral>(job, start);
      for (int i = 0; i < size; ++i) world[i] = job.world[splats[i].id];
    }
    JAXSPLAT_INLINE static void Prefetch(const TileJob& job, int64_t start, int i) {
      JAXSPLAT_ISA::Batch::Prefetch(job, start, i);
      const int64_t next = start + kBatch + i;
      if (next < job.size) __builtin_prefetch(&job.world[job.entries[next].id]);
    }
  };

  using Pixel = Rays;
  // The rays of the tile's groups. Pixels that see nothing get some ray, so that everything stays finite.
  class Pixels {
   public:
    Pixels(const TileJob& job, const BlockGrid& grid) {
      grid.Prefetch(job.rays, 6);
      for (int i = 0; i < grid.count * kGroups; ++i) {
        for (int lane = 0; lane < kLanes; ++lane) {
          for (int k = 0; k < kParts; ++k) parts_[i][k][lane] = k == 2;
          sees_[i][lane] = 0;
        }
      }
      for (int b = 0; b < grid.count; ++b) {
        grid.ForEachPixel(b, [&](int i, int64_t pixel) {
          const float* const ray = job.rays + pixel * 6;
          if (!Sees(ray)) return;
          const int group = b * kGroups + i / kLanes, lane = i % kLanes;
          sees_[group][lane] = 1;
          for (int k = 0; k < 3; ++k) parts_[group][k][lane] = ray[3 + k];
          for (int k = 3; k < kParts; ++k) parts_[group][k][lane] = ray[k - 3] - job.anchor[k - 3];
        });
      }
    }
    JAXSPLAT_INLINE Pixel At(int block, int group) const {
      const auto& part = parts_[block * kGroups + group];
      Pixel rays;
      for (int k = 0; k < 3; ++k) {
        rays.direction[k] = Vec::Load(part[k]);
        if constexpr (kMoving) rays.origin[k] = Vec::Load(part[k + 3]);
      }
      return rays;
    }
    Mask Inside(const BlockGrid&, int block, int group) const {
      return Vec(0.0f) < Vec::Load(sees_[block * kGroups + group]);
    }

   private:
    static constexpr int kParts = kMoving ? 6 : 3;
    alignas(64) float parts_[kMaxBlocks * kGroups][kParts][kLanes];
    alignas(64) float sees_[kMaxBlocks * kGroups][kLanes];
  };

  static JAXSPLAT_INLINE Mask Evaluate(const Batch& batch, int i, const Pixel& pixel, Vec* minus_q) {
    const CanonicalRay ray = Canonical<kMoving>(batch.world[i], pixel);
    *minus_q = MinusQ(ray);
    return (Vec(batch.splats[i].floor) <= *minus_q) & (Vec(0.0f) < ray.front);
  }

  // Sums of the forward pass: weight times distance, and times normal.
  struct Hits {
    Vec sum[kHits ? kHitChannels : 1];
    JAXSPLAT_INLINE Hits() {
      for (Vec& s : sum) s = Vec(0.0f);
    }
    JAXSPLAT_INLINE void Add(const Batch& batch, int i, const Pixel& pixel, const Vec&, const Step& step) {
      if constexpr (kHits) {
        const GaussianWorld& world = batch.world[i];
        const CanonicalRay ray = Canonical<kMoving>(world, pixel);
        sum[0] = Fma(step.weight, ray.front * ray.inverse, sum[0]);
        const Vec turned = step.weight * Facing(world, pixel);
        for (int k = 0; k < 3; ++k) sum[k + 1] = Fma(turned, Vec(world.normal[k]), sum[k + 1]);
      }
    }
  };

  // A group's cotangents of the hits, and its gradients of the rays.
  struct GroupGradient {
    alignas(64) float v_hits[kHits ? kHitChannels : 1][kLanes], v_rays[6][kLanes];

    JAXSPLAT_INLINE Vec VHit(int k) const { return Vec::Load(v_hits[k]); }
    JAXSPLAT_INLINE Vec VRay(int k) const { return Vec::Load(v_rays[k]); }
    JAXSPLAT_INLINE void SetVRay(int k, const Vec& value) { value.Store(v_rays[k]); }
    void Clear() {
      __builtin_memset(v_hits, 0, sizeof(v_hits));
      __builtin_memset(v_rays, 0, sizeof(v_rays));
    }
    // Takes over one pixel's cotangents, and returns their product with what the forward pass found.
    float Load(const PictureGradient& gradient, bool first_pass, int64_t pixel, int lane) {
      float sum = 0;
      for (int c = 0; c < kHitChannels && first_pass; ++c) {
        v_hits[kHits ? c : 0][lane] = gradient.v_hits[pixel * kHitChannels + c];
        sum += gradient.v_hits[pixel * kHitChannels + c] * gradient.hits[pixel * kHitChannels + c];
      }
      return sum;
    }
    // Adds to the gradient of the rays of group `group` of a block.
    void Store(const BlockGrid& grid, int block, int group, float* rays) const {
      if (rays == nullptr) return;
      grid.ForEachPixel(block, [&](int i, int64_t pixel) {
        if (i / kLanes != group) return;
        for (int k = 0; k < 6; ++k) rays[pixel * 6 + k] += v_rays[k][i % kLanes];
      });
    }
  };

  struct Splat {
    const GaussianWorld& world;
    bool v_rays;  // whether the rays get gradients
    Splat(const Batch& batch, int i, const GradientSlots& slots)
        : world(batch.world[i]), v_rays(slots.v_rays != nullptr) {}
  };
  struct Point : WorldPoint {
    JAXSPLAT_INLINE Point(const Splat& splat, const Pixel& pixel)
        : WorldPoint(Canonical<kMoving>(splat.world, pixel)) {}
  };
  struct Sums : WorldSums<kHits> {
    JAXSPLAT_INLINE Vec AddHits(const Splat& splat, const Pixel& pixel, const Point& at, const Vec& weight,
                                const GroupGradient& group) {
      return WorldSums<kHits>::AddHits(splat.world, pixel, at, weight, group);
    }
    JAXSPLAT_INLINE void Add(const Splat& splat, const Point& at, const Vec& gradient, const Vec& weight,
                             GroupGradient& group) {
      WorldSums<kHits>::Add(splat.world, at, gradient, weight, splat.v_rays, group);
    }
    JAXSPLAT_INLINE void Write(float* slot) const {
      const Vec zero(0.0f);
      SumFour(this->m, this->v[0], this->v[1], this->v[2], slot);
      SumFour(this->xx, this->xy, this->xz, this->yy, slot + 4);
      SumFour(this->yz, this->zz, zero, zero, slot + 8);
      if constexpr (kHits) SumFour(this->normal[0], this->normal[1], this->normal[2], zero, slot + 12);
    }
  };
};

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA

#endif  // JAXSPLAT_CPU_PRIMITIVES_INC_H_
