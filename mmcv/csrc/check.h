// The last line of defence of an op: Python has checked shapes and dtypes with friendlier messages.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

namespace mmcv {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

#define MMCV_CHECK(condition, ...) STD_TORCH_CHECK(condition, __VA_ARGS__)

// Runs `body` with the C++ type of a floating-point tensor as `scalar_t`.
#define MMCV_DISPATCH_FLOATING(name, type, ...)                                         \
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
      using scalar_t = c10::Half;                                                       \
      __VA_ARGS__();                                                                    \
      break;                                                                            \
    }                                                                                   \
    case ::mmcv::ScalarType::BFloat16: {                                                \
      using scalar_t = c10::BFloat16;                                                   \
      __VA_ARGS__();                                                                    \
      break;                                                                            \
    }                                                                                   \
    default:                                                                            \
      MMCV_CHECK(false, name, ": dtype must be float32, float64, float16 or bfloat16"); \
  }

// What a dtype is summed in.
template <typename scalar_t>
struct Accumulate {
  using type = float;
};
template <>
struct Accumulate<double> {
  using type = double;
};

inline ScalarType accumulate_type(ScalarType type) {
  return type == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

template <typename scalar_t>
const scalar_t* data(const Tensor& tensor) {
  return static_cast<const scalar_t*>(tensor.const_data_ptr());
}

template <typename scalar_t>
scalar_t* mutable_data(const Tensor& tensor) {
  return static_cast<scalar_t*>(tensor.mutable_data_ptr());
}

}  // namespace mmcv
