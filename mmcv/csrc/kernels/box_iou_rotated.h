// Intersection over union of rotated rectangles on the GPU. Geometry: rotated_overlap.h.
//
// Floors for 1000 x 1000 boxes, fp32: 4 MB written, 0.001 ms at 4.3 TB/s; up to 500 flops for a
// pair that meets, 0.5 GFLOP, 0.008 ms at 67 TFLOP/s. Polygons of a thread lie in local memory
// (L1), which is the price of clipping with a data-dependent number of corners.
//
// Mapping: one thread per pair in memory order of the result; threads of a wave share the first
// box.
#pragma once

#include "gpu.h"
#include "rotated_overlap.h"

namespace mmcv {

template <typename T>
__global__ void __launch_bounds__(gpu::kBlockSize)
    box_iou_rotated_kernel(const T* __restrict__ boxes1,  // (N, 5) cx, cy, w, h, angle
                           const T* __restrict__ boxes2,  // (M, 5)
                           T* __restrict__ output,        // (N, M), or (N) if aligned
                           int64_t total, int64_t M, bool iof, bool aligned, T direction) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * gpu::kBlockSize;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * gpu::kBlockSize + threadIdx.x; i < total;
       i += stride) {
    const int64_t first = aligned ? i : i / M, second = aligned ? i : i % M;
    output[i] = overlap(boxes1 + 5 * first, boxes2 + 5 * second, iof, direction);
  }
}

}  // namespace mmcv
