// Sigmoid focal loss (Lin et al. 2017, equation 5) on the GPU. Formula: focal.h.
//
// Floors for 900 queries x 10 classes x 6 layers: 0.4 MB, far below the cost of a launch. For a
// dense head of 200 000 anchors x 80 classes, fp32: read and written once, 128 MB, 0.03 ms at 4.3
// TB/s; about 40 flops a logit with its transcendentals, 0.6 GFLOP, 0.01 ms: bound by memory.
//
// Mapping: one thread per logit in memory order; nothing is shared between threads.
#pragma once

#include "focal.h"
#include "gpu.h"

namespace mmcv {

// With `grad_output` the gradient of the logits, without it the loss.
template <typename scalar_t>
__global__ void __launch_bounds__(gpu::kBlockSize) sigmoid_focal_loss_kernel(
    const scalar_t* __restrict__ grad_output,  // (N, C), or null
    const scalar_t* __restrict__ logits,       // (N, C)
    const int64_t* __restrict__ target,        // (N); outside 0...C-1 is background
    const scalar_t* __restrict__ weight,       // (C), or null
    scalar_t* __restrict__ output,             // (N, C)
    int64_t N, int64_t C, Focal<typename gpu::Accumulate<scalar_t>::type> focal) {
  using acc_t = typename gpu::Accumulate<scalar_t>::type;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * gpu::kBlockSize;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * gpu::kBlockSize + threadIdx.x; i < N * C;
       i += stride) {
    const int64_t row = i / C, label = target[row];
    const bool positive = i - row * C == label;
    const acc_t x = gpu::to_float(logits[i]);
    acc_t result = grad_output == nullptr
                       ? focal.loss(x, positive)
                       : focal.gradient(x, positive) * gpu::to_float(grad_output[i]);
    if (weight != nullptr && label >= 0 && label < C) result *= gpu::to_float(weight[label]);
    output[i] = gpu::from_float<scalar_t>(result);
  }
}

}  // namespace mmcv
