// RoIAlign on the GPU: mean, or largest, of the samples of each bin. Geometry: roi_grid.h.
//
// Floors for 1000 boxes on (2, 256, 200, 304), 7 x 7 bins, fp32: the image is read once, 125 MB,
// the output written, 50 MB: 0.041 ms at 4.3 TB/s. With 2 x 2 samples 12.5 M bins * 4 samples * 8
// flops = 0.4 GFLOP, 0.006 ms at 67 TFLOP/s. Above the floors lies the gather: 4 * 4 pixels a bin
// from L2.
//
// Mapping: one thread per number of the output in memory order. Neighbouring threads take
// neighbouring bins of a box, whose pixels share cache lines, and write one stretch. Backward: the
// same threads add to the image by atomics, since boxes overlap in any order.
#pragma once

#include "fixed_point.h"
#include "roi_grid.h"

namespace mmcv {

template <typename scalar_t, typename acc_t>
__device__ inline acc_t bilinear(const scalar_t* __restrict__ plane,  // (H, W)
                                 const ClampedSample<acc_t>& sample) {
  acc_t sum = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) sum += sample.weight[k] * gpu::to_float(plane[sample.at[k]]);
  return sum;
}

template <typename scalar_t>
__global__ void __launch_bounds__(gpu::kBlockSize, gpu::kMinBlocks)
    roi_align_kernel(const scalar_t* __restrict__ input,  // (B, C, H, W)
                     const typename gpu::Accumulate<scalar_t>::type* __restrict__ rois,
                     // (K, 5) index in the batch, x1, y1, x2, y2
                     scalar_t* __restrict__ output,  // (K, C, bins_y, bins_x)
                     RoiAlignSize size, RoiAlignOptions options) {
  using acc_t = typename gpu::Accumulate<scalar_t>::type;
  const int64_t total = size.K * size.C * size.bins_y * size.bins_x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * gpu::kBlockSize;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * gpu::kBlockSize + threadIdx.x; at < total;
       at += stride) {
    const int64_t j = at % size.bins_x, i = at / size.bins_x % size.bins_y;
    const int64_t channel = at / (size.bins_x * size.bins_y) % size.C;
    const int64_t k = at / (size.bins_x * size.bins_y * size.C);
    acc_t result = 0;
    RoiGrid<acc_t> grid;
    if (grid.find(rois + 5 * k, size, options)) {
      const scalar_t* plane = input + (grid.image * size.C + channel) * size.H * size.W;
      if (options.largest) {
        bool found = false;
        const bool all = grid.visit(i, j, size, [&](const ClampedSample<acc_t>& sample) {
          const acc_t value = bilinear(plane, sample);
          if (!found || value > result) result = value;
          found = true;
        });
        if (!all && !(result > 0)) result = 0;  // what samples outside the image are
      } else {
        grid.visit(i, j, size,
                   [&](const ClampedSample<acc_t>& sample) { result += bilinear(plane, sample); });
        result /= static_cast<acc_t>(grid.rows * grid.columns);
      }
    }
    output[at] = gpu::from_float<scalar_t>(result);
  }
}

template <typename scalar_t, typename sum_t>
__global__ void __launch_bounds__(gpu::kBlockSize, gpu::kMinBlocks)
    roi_align_backward_kernel(const scalar_t* __restrict__ grad_output,  // (K, C, bins_y, bins_x)
                              const scalar_t* __restrict__ input,  // (B, C, H, W); read for largest
                              const typename gpu::Accumulate<scalar_t>::type* __restrict__ rois,
                              // (K, 5) index in the batch, x1, y1, x2, y2
                              const double* __restrict__ fixed_point_scale,  // (1), or null
                              sum_t* __restrict__ grad_input,                // (B, C, H, W), zeros
                              RoiAlignSize size, RoiAlignOptions options) {
  using acc_t = typename gpu::Accumulate<scalar_t>::type;
  const double scale = fixed_point_scale == nullptr ? 1.0 : *fixed_point_scale;
  const int64_t total = size.K * size.C * size.bins_y * size.bins_x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * gpu::kBlockSize;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * gpu::kBlockSize + threadIdx.x; at < total;
       at += stride) {
    const int64_t j = at % size.bins_x, i = at / size.bins_x % size.bins_y;
    const int64_t channel = at / (size.bins_x * size.bins_y) % size.C;
    const int64_t k = at / (size.bins_x * size.bins_y * size.C);
    RoiGrid<acc_t> grid;
    if (!grid.find(rois + 5 * k, size, options)) continue;
    const int64_t plane = (grid.image * size.C + channel) * size.H * size.W;
    const acc_t gradient = gpu::to_float(grad_output[at]);
    const auto add = [&](const ClampedSample<acc_t>& sample, acc_t factor) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        add_gradient(grad_input + plane + sample.at[n], factor * sample.weight[n], scale);
      }
    };
    if (options.largest) {
      ClampedSample<acc_t> winner;
      acc_t best = 0;
      bool found = false;
      const bool all = grid.visit(i, j, size, [&](const ClampedSample<acc_t>& sample) {
        const acc_t value = bilinear(input + plane, sample);
        if (!found || value > best) {
          best = value;
          winner = sample;
        }
        found = true;
      });
      if (found && (all || best > 0)) add(winner, gradient);
    } else {
      const acc_t factor = gradient / static_cast<acc_t>(grid.rows * grid.columns);
      grid.visit(i, j, size, [&](const ClampedSample<acc_t>& sample) { add(sample, factor); });
    }
  }
}

}  // namespace mmcv
