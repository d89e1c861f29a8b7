// Compiled with the flags of this instruction set: see CMakeLists.txt.
#include "cpu/mesh_kernels.inc.h"

static_assert(jaxsplat::baseline::kLanes > 0, "compiled without the flags of baseline");
