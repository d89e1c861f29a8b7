// Marks functions that CUDA kernels call as well as the host.
#ifndef JAXSPLAT_CORE_HOST_DEVICE_H_
#define JAXSPLAT_CORE_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define JAXSPLAT_HD __host__ __device__
#else
#define JAXSPLAT_HD
#endif

#endif  // JAXSPLAT_CORE_HOST_DEVICE_H_
