// Greedy non-maximum suppression of boxes sorted by falling score: box i suppresses j > i when
// inter(i, j) > threshold * union(i, j).
//
// Floors for 10 000 boxes: N^2 / 2 = 50 M pairs * 15 flops = 0.75 GFLOP, 0.011 ms at 67 TFLOP/s;
// the bits take N^2 / 16 = 6.3 MB once written and once read, 0.003 ms. The walk over N / 64 = 157
// blocks is sequential: a few microseconds each, which is most of the time.
//
// Mapping, first kernel: a block of 64 threads compares 64 rows with 64 columns, which lie in
// shared memory; a thread has one row and writes one 64-bit word. Second kernel: one block walks
// the words; a thread resolves the 64 boxes on the diagonal, then all threads merge the rows of
// those kept.
#pragma once

#include "gpu.h"

namespace mmcv {

constexpr int kNmsTile = 64;         // boxes per word
constexpr int kNmsReduceSize = 512;  // threads of the second kernel

// 0 / 0 gives NaN, which suppresses nothing.
template <typename T>
__device__ inline bool suppresses(const T* a, const T* b, T threshold, T offset) {
  const T left = a[0] > b[0] ? a[0] : b[0], top = a[1] > b[1] ? a[1] : b[1];
  const T right = a[2] < b[2] ? a[2] : b[2], bottom = a[3] < b[3] ? a[3] : b[3];
  const T w = right - left + offset, h = bottom - top + offset;
  const T inter = (w > 0 ? w : T(0)) * (h > 0 ? h : T(0));
  const T area_a = (a[2] - a[0] + offset) * (a[3] - a[1] + offset);
  const T area_b = (b[2] - b[0] + offset) * (b[3] - b[1] + offset);
  return inter / (area_a + area_b - inter) > threshold;
}

template <typename T>
__global__ void __launch_bounds__(kNmsTile) nms_mask_kernel(
    const T* __restrict__ boxes,  // (N, 4) x1, y1, x2, y2
    int64_t* __restrict__ mask,   // (N, words), bits; words left of the diagonal unset
    int64_t count, int64_t words, T threshold, T offset) {
  const int64_t column_tile = blockIdx.x;
  __shared__ T columns[kNmsTile * 4];
  const int64_t loaded = column_tile * kNmsTile + threadIdx.x;
  if (loaded < count) {
    for (int k = 0; k < 4; ++k) columns[4 * threadIdx.x + k] = boxes[4 * loaded + k];
  }
  __syncthreads();
  const int64_t left = count - column_tile * kNmsTile;
  const int width = left < kNmsTile ? static_cast<int>(left) : kNmsTile;
  for (int64_t row_tile = blockIdx.y; row_tile <= column_tile; row_tile += gridDim.y) {
    const int64_t i = row_tile * kNmsTile + threadIdx.x;
    if (i >= count) continue;
    const T row[4] = {boxes[4 * i], boxes[4 * i + 1], boxes[4 * i + 2], boxes[4 * i + 3]};
    uint64_t bits = 0;
    for (int j = row_tile == column_tile ? threadIdx.x + 1 : 0; j < width; ++j) {
      if (suppresses(row, columns + 4 * j, threshold, offset)) bits |= uint64_t(1) << j;
    }
    mask[i * words + column_tile] = static_cast<int64_t>(bits);
  }
}

__global__ void __launch_bounds__(kNmsReduceSize)
    nms_reduce_kernel(const int64_t* __restrict__ mask,  // (N, words)
                      int64_t* removed,                  // (words), zeros; scratch
                      bool* __restrict__ keep,           // (N)
                      int64_t count, int64_t words) {
  __shared__ uint64_t diagonal[kNmsTile];
  __shared__ uint64_t kept_bits;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t tile = 0; tile < words; ++tile) {
    const int64_t first = tile * kNmsTile;
    const int height = count - first < kNmsTile ? static_cast<int>(count - first) : kNmsTile;
    if (thread < height) {
      diagonal[thread] = static_cast<uint64_t>(mask[(first + thread) * words + tile]);
    }
    __syncthreads();
    if (thread == 0) {
      uint64_t gone = static_cast<uint64_t>(removed[tile]), kept = 0;
      for (int i = 0; i < height; ++i) {
        if (gone >> i & 1) continue;
        kept |= uint64_t(1) << i;
        gone |= diagonal[i];
      }
      kept_bits = kept;
    }
    __syncthreads();
    const uint64_t kept = kept_bits;
    if (thread < height) keep[first + thread] = kept >> thread & 1;
    for (int64_t word = tile + 1 + thread; word < words; word += kNmsReduceSize) {
      int64_t bits = removed[word];
      for (int i = 0; i < height; ++i) {
        if (kept >> i & 1) bits |= mask[(first + i) * words + word];
      }
      removed[word] = bits;
    }
    __syncthreads();
  }
}

}  // namespace mmcv
