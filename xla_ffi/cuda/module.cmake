# The module for CUDA devices. JAXSPLAT_CUDA, a variable of CMake or of the environment, decides:
#   on    build it, for every architecture below, or fail;
#   off   do not;
#   auto  build it for the GPU of this machine, if there are a GPU and a working compiler.
if(NOT DEFINED JAXSPLAT_CUDA)
  if(DEFINED ENV{JAXSPLAT_CUDA})
    set(JAXSPLAT_CUDA "$ENV{JAXSPLAT_CUDA}")
  else()
    set(JAXSPLAT_CUDA "auto")
  endif()
endif()
string(TOLOWER "${JAXSPLAT_CUDA}" JAXSPLAT_CUDA_MODE)
if(NOT JAXSPLAT_CUDA_MODE MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "JAXSPLAT_CUDA must be auto, on or off, got '${JAXSPLAT_CUDA}'")
endif()
if(JAXSPLAT_CUDA_MODE STREQUAL "off")
  return()
endif()

if(JAXSPLAT_CUDA_MODE STREQUAL "auto")
  execute_process(COMMAND nvidia-smi -L RESULT_VARIABLE JAXSPLAT_NO_GPU OUTPUT_VARIABLE JAXSPLAT_GPUS ERROR_QUIET TIMEOUT 20)
  if(JAXSPLAT_NO_GPU OR NOT JAXSPLAT_GPUS MATCHES "GPU 0")
    message(STATUS "No CUDA module: there is no GPU (JAXSPLAT_CUDA=on builds it nevertheless)")
    return()
  endif()
endif()

# Ends this file without the module, or the build where the module must be.
macro(jaxsplat_without_cuda reason)
  if(JAXSPLAT_CUDA_MODE STREQUAL "on")
    message(FATAL_ERROR "JAXSPLAT_CUDA is on, but ${reason}")
  endif()
  message(STATUS "No CUDA module: ${reason}")
  return()
endmacro()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  jaxsplat_without_cuda("there is no working nvcc (CMAKE_CUDA_COMPILER or CUDACXX names one)")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND JAXSPLAT_CUDA_MODE STREQUAL "auto")
  set(CMAKE_CUDA_ARCHITECTURES native)
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # chosen below, when the version of the compiler is known
endif()
enable_language(CUDA)
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12 OR NOT CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 14)
  jaxsplat_without_cuda("it needs the toolkit of CUDA 12 or 13, found ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Machine code for each, and PTX for those to come.
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 100-real 120)
  endif()
endif()
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/headers.cu
  "#include <cub/cub.cuh>\n#include <cuda_runtime.h>\nint main() { return cudaGetLastError(); }\n")
try_compile(JAXSPLAT_CUDA_HEADERS_WORK ${CMAKE_CURRENT_BINARY_DIR}/headers
  SOURCES ${CMAKE_CURRENT_BINARY_DIR}/headers.cu CMAKE_FLAGS -DCMAKE_CUDA_STANDARD=17)
if(NOT JAXSPLAT_CUDA_HEADERS_WORK)
  jaxsplat_without_cuda("nvcc cannot compile the headers of CUDA or of CUB: the toolkit is not whole")
endif()
message(STATUS "CUDA module for ${CMAKE_CUDA_ARCHITECTURES}")

add_library(_cuda MODULE
  cuda/device_sort.cu
  cuda/mesh_backward.cu
  cuda/mesh_forward.cu
  cuda/rasterize_gaussians_3d.cu
  cuda/silhouettes.cu
  cuda/tile_backward.cu
  cuda/tile_entries.cu
  cuda/tile_faces.cu
  cuda/tile_forward.cu
  cuda/tile_lists.cu
  ffi/module.cc
  ffi/rasterize_gaussians_3d.cc
  ffi/rasterize_gaussians_world.cc
  ffi/rasterize_meshes.cc)
set_target_properties(_cuda PROPERTIES PREFIX "" CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static)
target_include_directories(_cuda PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(_cuda SYSTEM PRIVATE ${JAXSPLAT_XLA_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_compile_definitions(_cuda PRIVATE $<IF:$<COMPILE_LANGUAGE:CUDA>,JAXSPLAT_DEVICE,JAXSPLAT_CUDA>)
# No contraction, as in the other module: the lists of tiles are the same ones.
target_compile_options(_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-O3;-Wall;-Wextra;-Wno-unknown-pragmas>
  $<$<COMPILE_LANGUAGE:CUDA>:-O3;-fmad=false;-Xfatbin=-compress-all>)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  target_link_options(_cuda PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
endif()
install(TARGETS _cuda LIBRARY DESTINATION jaxsplat)
