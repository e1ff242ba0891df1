// For code that runs on the CPU and the GPU: no headers of a vendor.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define MMCV_HOST_DEVICE __host__ __device__
#define MMCV_NO_UNROLL _Pragma("unroll 1")
#else
#define MMCV_HOST_DEVICE
#define MMCV_NO_UNROLL
#endif
