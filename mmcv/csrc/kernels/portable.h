// For code that runs on the CPU and the GPU: no headers of a vendor.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__)
#define MMCV_HOST_DEVICE __host__ __device__
#else
#define MMCV_HOST_DEVICE
#endif
