// Every loop that is compiled once per instruction set, and the table of them.
#include "cpu/adam.inc.h"
#include "cpu/kernels.h"
#include "cpu/mesh_kernels.inc.h"
#include "cpu/mesh_silhouettes.inc.h"
#include "cpu/prepare.inc.h"
#include "cpu/projection.inc.h"
#include "cpu/spherical_harmonics.inc.h"
#include "cpu/ssim.inc.h"
#include "cpu/tile_backward.inc.h"
#include "cpu/tile_forward.inc.h"

namespace jaxsplat::JAXSPLAT_ISA {

#define JAXSPLAT_STRING_(x) #x
#define JAXSPLAT_STRING(x) JAXSPLAT_STRING_(x)
extern const Kernels kKernels;
const Kernels kKernels = {JAXSPLAT_STRING(JAXSPLAT_ISA),
                          PrepareSplats,
                          Forward,
                          Backward,
                          Project,
                          ProjectGradient,
                          Adam,
                          SsimMap,
                          SsimGradient,
                          HarmonicsForward,
                          HarmonicsBackward,
                          Fragments,
                          DifferentiateSlots,
                          Silhouettes,
                          SilhouettesVjp};

}  // namespace jaxsplat::JAXSPLAT_ISA
