#include "cpu/rasterize_gaussians_world.h"

#include <algorithm>

namespace jaxsplat {
namespace {

constexpr int64_t kGrain = 1024;
constexpr int64_t kMostChunks = 64;

}  // namespace

const float* FindAnchor(const ImageGrid& grid, const float* rays) {
  int64_t pixel = 0;
  while (pixel + 1 < grid.width * grid.height && !Sees(rays + pixel * 6)) ++pixel;
  return rays + pixel * 6;
}

PreparedWorld PrepareWorld(Pool* pool, Scratch& scratch, const ImageGrid& grid, const Splats2d& splats) {
  if (splats.world == nullptr) return {};
  const WorldSplats& world = *splats.world;
  // A copy: what is prepared may outlive the rays.
  auto* anchor = scratch.Take<float>(3);
  std::copy_n(FindAnchor(grid, world.rays), 3, anchor);
  auto* prepared = scratch.Take<GaussianWorld>(splats.size);
  const Chunks chunks(splats.size, kGrain, kMostChunks);
  ParallelFor(pool, chunks.count, [&](int64_t chunk) {
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
      if (splats.radii != nullptr && !splats.Visible(i)) continue;
      const CanonicalSpace space(world.means + i * 3, world.quats + i * 4, world.scales + i * 3, anchor);
      if (!space.drawn) {
        prepared[i] = GaussianWorld::NotDrawn();
        continue;
      }
      GaussianWorld& to = prepared[i];
      for (int k = 0; k < 9; ++k) to.a[k / 3][k % 3] = static_cast<float>(space.a[k / 3][k % 3]);
      to.distance = static_cast<float>(space.distance);
      for (int k = 0; k < 3; ++k) to.normal[k] = world.normals != nullptr ? world.normals[i * 3 + k] : 0;
    }
  });
  return {prepared, anchor};
}

void WriteGradient(const Splats2d& splats, const float* anchor, int64_t id, const MomentsWorld& moments, bool touched,
                   bool first_pass, const SplatGradient& result) {
  const WorldSplats& world = *splats.world;
  const WorldGradient& to = *result.world;
  const auto write = [&](float* at, double value) {
    *at = static_cast<float>(first_pass ? value : value + static_cast<double>(*at));
  };
  WorldGaussianGradient g{};
  if (touched) {
    const float* const scale = world.scales + id * 3;
    g = EvaluateVjp(moments, CanonicalSpace(world.means + id * 3, world.quats + id * 4, scale, anchor), scale,
                    splats.opacities[id]);
  }
  for (int k = 0; k < 3; ++k) write(to.means + id * 3 + k, g.mean[k]);
  for (int k = 0; k < 4; ++k) write(to.quats + id * 4 + k, g.quat[k]);
  for (int k = 0; k < 3; ++k) write(to.scales + id * 3 + k, g.scale[k]);
  write(result.opacities + id, g.opacity);
  for (int k = 0; k < 3 && to.normals != nullptr; ++k) {
    write(to.normals + id * 3 + k, touched ? static_cast<double>(moments.normal[k]) : 0);
  }
}

}  // namespace jaxsplat
