// The silhouettes of the faces of one tile. Included by one source file per instruction set.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/simd.h"
#include "cpu/mesh_kernels.h"
#include "cpu/mesh_pixels.inc.h"
#include "math/triangle.h"
#include "math/triangle_vjp.h"

namespace jaxsplat::JAXSPLAT_ISA {
namespace {

// Sums -log(1 - coverage) over all faces, in no more memory than the picture.
void Silhouettes(const MeshTileJob& job, float sigma, float* transmittances) {
  const TilePixels pixels(job);
  const int groups = pixels.side * pixels.side * kGroups;
  std::fill_n(job.scratch, groups * kLanes, 0.0f);
  const Vec scale(-1.0f / sigma);
  for (int64_t i = 0; i < job.size; ++i) {
    const int64_t face = job.entries[i].id;
    ForEachHit<true>(job, pixels, face, NeighborOf(job, face),
                     [&](int64_t group, const Vec&, const Vec&, const TriangleHit& found) {
                       float* const at = job.scratch + group * kLanes;
                       const Coverage coverage(found.SignedDistance() * scale);
                       (Vec::Load(at) + Keep(found.hit, coverage.softplus)).Store(at);
                     });
  }
  for (int g = 0; g < groups; ++g) {
    alignas(64) float values[kLanes];
    ExpOfMinus(Vec::Load(job.scratch + g * kLanes)).Store(values);
    const int block = g / kGroups;
    pixels.ForEachPixel(block % pixels.side, block / pixels.side, g % kGroups,
                        [&](int lane, int64_t pixel) { transmittances[pixel] = values[lane]; });
  }
}

// For each entry of the tile its slot of the gradient: x and y of the three corners, and two zeros.
void SilhouettesVjp(const MeshTileJob& job, float sigma, const float* transmittances, const float* v_transmittances,
                    float* slots) {
  const TilePixels pixels(job);
  const int groups = pixels.side * pixels.side * kGroups;
  // By pixel: the transmittance times its cotangent.
  std::fill_n(job.scratch, groups * kLanes, 0.0f);
  for (int g = 0; g < groups; ++g) {
    const int block = g / kGroups;
    pixels.ForEachPixel(block % pixels.side, block / pixels.side, g % kGroups, [&](int lane, int64_t pixel) {
      job.scratch[g * kLanes + lane] = transmittances[pixel] * v_transmittances[pixel];
    });
  }
  const Vec scale(-1.0f / sigma), zero(0.0f);
  for (int64_t i = 0; i < job.size; ++i) {
    const int64_t face = job.entries[i].id;
    const float* p = job.mesh.face_verts + face * 9;
    const CornerVec v[3] = {
        {Vec(p[0]), Vec(p[1]), Vec(p[2])}, {Vec(p[3]), Vec(p[4]), Vec(p[5])}, {Vec(p[6]), Vec(p[7]), Vec(p[8])}};
    CornerVec sums[3] = {{zero, zero, zero}, {zero, zero, zero}, {zero, zero, zero}};
    ForEachHit<true>(job, pixels, face, NeighborOf(job, face),
                     [&](int64_t group, const Vec& x, const Vec& y, const TriangleHit& found) {
                       const Coverage coverage(found.SignedDistance() * scale);
                       // The transmittance falls by coverage / sigma as the face comes nearer by 1.
                       const Vec slope = Vec::Load(job.scratch + group * kLanes) * coverage.sigmoid * (zero - scale);
                       const Vec g = Keep(found.hit, Select(found.inside, zero - slope, slope));
                       OutlineVjp(g, x, y, v, sums);
                     });
    float* const slot = slots + int64_t{job.entries[i].slot} * kSilhouetteSlot;
    SumFour(sums[0].x, sums[0].y, sums[1].x, sums[1].y, slot);
    SumFour(sums[2].x, sums[2].y, zero, zero, slot + 4);
  }
}

}  // namespace
}  // namespace jaxsplat::JAXSPLAT_ISA
