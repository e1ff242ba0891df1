// Sums of gradients whose terms arrive in any order: hardware atomics in floating point, or in
// 64-bit fixed point, where the sum does not depend on the order.
#pragma once

#include "gpu.h"

namespace mmcv {

template <typename acc_t>
__device__ inline void add_gradient(acc_t* target, acc_t value, double /*scale*/) {
  gpu::atomic_add(target, value);
}
template <typename acc_t>
__device__ inline void add_gradient(int64_t* target, acc_t value, double scale) {
  gpu::atomic_add(target, static_cast<int64_t>(rint(static_cast<double>(value) * scale)));
}

}  // namespace mmcv
