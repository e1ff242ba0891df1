// What launchers share: the stream of the current device, the guard, dispatch over dtypes.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include "check.h"
#include "kernels/gpu.h"

// In libtorch_cuda, or libtorch_hip: absent from a CPU-only torch, where nothing calls it.
#if defined(__GNUC__)
#pragma weak aoti_torch_get_current_cuda_stream
#endif

namespace mmcv {

inline gpu::Stream current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return static_cast<gpu::Stream>(stream);
}

// Runs `body` with the device type of a floating-point tensor as `scalar_t`.
#define MMCV_DISPATCH_GPU(name, type, ...)                                              \
  switch (type) {                                                                       \
    case ::mmcv::ScalarType::Float: {                                                   \
      using scalar_t = float;                                                           \
      __VA_ARGS__();                                                                    \
      break;                                                                            \
    }                                                                                   \
    case ::mmcv::ScalarType::Double: {                                                  \
      using scalar_t = double;                                                          \
      __VA_ARGS__();                                                                    \
      break;                                                                            \
    }                                                                                   \
    case ::mmcv::ScalarType::Half: {                                                    \
      using scalar_t = gpu::Half;                                                       \
      __VA_ARGS__();                                                                    \
      break;                                                                            \
    }                                                                                   \
    case ::mmcv::ScalarType::BFloat16: {                                                \
      using scalar_t = gpu::BFloat16;                                                   \
      __VA_ARGS__();                                                                    \
      break;                                                                            \
    }                                                                                   \
    default:                                                                            \
      MMCV_CHECK(false, name, ": dtype must be float32, float64, float16 or bfloat16"); \
  }

// One thread for each of `count` pieces of work, in blocks of the usual size.
inline gpu::Launch threads_for(int64_t count, const Tensor& tensor) {
  return {gpu::blocks_for(count), gpu::kBlockSize, current_stream(tensor)};
}

inline void check_launch(const char* name) {
  const char* error = gpu::last_error();
  MMCV_CHECK(error == nullptr, name, ": kernel launch failed: ", error);
}

}  // namespace mmcv
