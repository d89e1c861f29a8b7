// The innermost loops, compiled once per instruction set and chosen when the module is loaded.
#ifndef JAXSPLAT_CPU_KERNELS_H_
#define JAXSPLAT_CPU_KERNELS_H_

#include <cstdint>

#include "cpu/mesh_kernels.h"
#include "cpu/tile_kernels.h"
#include "cpu/tile_runs.h"
#include "ops/adam.h"
#include "ops/project_gaussians.h"
#include "ops/spherical_harmonics.h"
#include "ops/ssim.h"

namespace jaxsplat {

struct Kernels {
  const char* name;
  // Splats [begin, end), prepared as far as they are visible and, where they have a world, drawn there; and the tiles
  // that they touch, if these are wanted.
  void (*prepare)(const Splats2d&, int64_t begin, int64_t end, double alpha_min, const GaussianWorld* world,
                  Gaussian2d*, RunWriter*);
  void (*forward)(const TileJob&, const Picture&);
  void (*backward)(const TileJob&, const PictureGradient&, const GradientSlots&);
  // Splats [begin, end) of one scene, in all its cameras; `terms` is scratch for [cameras, kCameraTerms, 16].
  void (*project)(const Scene3d&, const ProjectionRule&, int64_t begin, int64_t end, const Projection&);
  void (*project_gradient)(const Scene3d&, const ProjectionRule&, const ProjectionCotangent&, int64_t begin,
                           int64_t end, float* terms, const ProjectionGradient&);
  // Elements [begin, end); if `changed` is given, only those for which it is positive, counted from begin.
  void (*adam)(const AdamRule&, const AdamArrays&, int64_t begin, int64_t end, const float* changed);
  // A block of one image: the map; and with it, the gradient of its weighted sum with respect to x.
  void (*ssim)(const SsimImages&, const SsimBlock&, float* map);
  void (*ssim_gradient)(const SsimImages&, const SsimWeights&, const SsimBlock&, float* map, float* v_x);
  // Splats [begin, end) of one scene, seen by all its cameras.
  void (*harmonics)(const Harmonics&, int64_t begin, int64_t end, float* values);
  void (*harmonics_gradient)(const Harmonics&, const float* v_values, int64_t begin, int64_t end,
                             const HarmonicsGradient&);
  // The nearest faces of the pixels of a tile, whose slots have been cleared.
  void (*fragments)(const MeshTileJob&, const FragmentArrays&);
  // Differentiates the slots of rows [begin, end) that have a face: writes its index and the gradient of its corners
  // [9], and returns their number.
  int64_t (*differentiate)(const SlotsJob&, const float* slot_xs, int64_t begin_row, int64_t end_row, int32_t* faces,
                           float* gradients);
  // The part of each pixel of a tile that no face covers, [H, W].
  void (*silhouettes)(const MeshTileJob&, float sigma, float* transmittances);
  // Its reverse step: writes the slots [kSilhouetteSlot] of all entries of the tile.
  void (*silhouettes_vjp)(const MeshTileJob&, float sigma, const float* transmittances, const float* v_transmittances,
                          float* slots);
};

// The best kernels that this processor runs; the environment variable JAXSPLAT_ISA (avx512, avx2 or baseline) asks for
// less.
const Kernels& BestKernels();

}  // namespace jaxsplat

#endif  // JAXSPLAT_CPU_KERNELS_H_
