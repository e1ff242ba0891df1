// Multi-scale deformable attention (Zhu et al. 2021, equation 3).
//
//   out[b, q, h, :] = sum over l, p of weights[b, q, h, l, p] * bilinear(value_l[b, :, h, :]; y, x)
//   with x = locations[.., 0] * W_l - 1/2, y = locations[.., 1] * H_l - 1/2, and 0 outside the map.
//
// Floors for BEVFormer-base's spatial cross-attention (B 6, S 30825, H 8, C 32, Q 9893, L 4, P 8,
// fp32): bytes forward: value 189 MB + locations 122 MB + weights 61 MB + output 61 MB = 0.43 GB,
// 0.10 ms at 4.3 TB/s; backward reads that and the gradient, and writes value, locations and
// weights: 0.19 ms. Flops: 15.2 M samples * 32 channels * 4 corners * 2 = 3.9 GFLOP forward, 0.06
// ms at 67 TFLOP/s. What is left above the floors is the gather: 15.2 M * 4 rows of 128 bytes = 7.8
// GB from L2.
//
// Mapping: a group of `Lanes` neighbouring lanes owns one (batch, query, head), each lane `Width`
// neighbouring channels, so that a row of a head is read by one 16-byte load a lane. All lanes of a
// group see the same location: control flow is uniform in a group. More channels than Lanes * Width
// are walked in chunks. Backward: the group sums the gradients of location and weight by shuffles
// and one lane writes them, without atomics; gradients of value go through hardware atomics on fp32
// (rows of other queries overlap in any order), or on 64-bit fixed point, whose sum does not depend
// on the order, when determinism is asked for.
#pragma once

#include "fixed_point.h"

namespace mmcv {

struct MsDeformAttnSize {
  int64_t B, S, H, C, Q, L, P;
};

// The corners of one sample: offsets of rows in the level (in rows of value), bilinear weights.
template <typename acc_t>
struct Sample {
  int64_t row[4];
  acc_t weight[4];
  acc_t fy, fx, height, width;
  bool inside[4];

  // False if the sample touches no pixel; so do NaN and infinite locations, and levels out of
  // bounds.
  __device__ bool find(const int64_t* __restrict__ shape, int64_t start, int64_t num_rows,
                       acc_t loc_x, acc_t loc_y) {
    const int64_t h = shape[0], w = shape[1];
    height = static_cast<acc_t>(h);
    width = static_cast<acc_t>(w);
    const acc_t y = loc_y * height - acc_t(0.5);
    const acc_t x = loc_x * width - acc_t(0.5);
    const bool touches = y > -1 && x > -1 && y < height && x < width;
    if (!touches || start < 0 || start + h * w > num_rows) return false;
    const acc_t y0 = floor(y), x0 = floor(x);
    fy = y - y0;
    fx = x - x0;
    const int64_t top = static_cast<int64_t>(y0), left = static_cast<int64_t>(x0);
    const bool above = top >= 0, below = top + 1 < h;
    const bool before = left >= 0, behind = left + 1 < w;
    inside[0] = above && before;
    inside[1] = above && behind;
    inside[2] = below && before;
    inside[3] = below && behind;
    row[0] = start + top * w + left;
    row[1] = row[0] + 1;
    row[2] = row[0] + w;
    row[3] = row[2] + 1;
    weight[0] = (1 - fy) * (1 - fx);
    weight[1] = (1 - fy) * fx;
    weight[2] = fy * (1 - fx);
    weight[3] = fy * fx;
    return true;
  }
};

template <typename scalar_t, int Width, int Lanes>
__global__ void __launch_bounds__(gpu::kBlockSize, gpu::kMinBlocks)
    ms_deform_attn_kernel(const scalar_t* __restrict__ value,  // (B, S, H, C)
                          const int64_t* __restrict__ shapes,  // (L, 2) height, width
                          const int64_t* __restrict__ starts,  // (L)
                          const typename gpu::Accumulate<scalar_t>::type* __restrict__ locations,
                          // (B, Q, H, L, P, 2) x, y
                          const typename gpu::Accumulate<scalar_t>::type* __restrict__ weights,
                          // (B, Q, H, L, P)
                          scalar_t* __restrict__ output,  // (B, Q, H, C)
                          MsDeformAttnSize size) {
  using acc_t = typename gpu::Accumulate<scalar_t>::type;
  const int lane = threadIdx.x % Lanes;
  const int64_t items = size.B * size.Q * size.H;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (gpu::kBlockSize / Lanes);
  int64_t item = (static_cast<int64_t>(blockIdx.x) * gpu::kBlockSize + threadIdx.x) / Lanes;
  for (; item < items; item += stride) {
    const int64_t h = item % size.H;
    const int64_t b = item / (size.Q * size.H);
    const scalar_t* head = value + (b * size.S * size.H + h) * size.C;
    for (int64_t c = lane * Width; c < size.C; c += Lanes * Width) {
      acc_t sum[Width] = {};
      int64_t at = item * size.L * size.P;
      for (int64_t l = 0; l < size.L; ++l) {
        for (int64_t p = 0; p < size.P; ++p, ++at) {
          Sample<acc_t> sample;
          if (!sample.find(shapes + 2 * l, starts[l], size.S, locations[2 * at],
                           locations[2 * at + 1])) {
            continue;
          }
          const acc_t attention = weights[at];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (!sample.inside[k]) continue;
            const auto pixel =
                gpu::load<scalar_t, Width>(head + sample.row[k] * size.H * size.C + c);
            const acc_t factor = sample.weight[k] * attention;
#pragma unroll
            for (int i = 0; i < Width; ++i) sum[i] += factor * gpu::to_float(pixel.element[i]);
          }
        }
      }
      gpu::Vector<scalar_t, Width> result;
#pragma unroll
      for (int i = 0; i < Width; ++i) result.element[i] = gpu::from_float<scalar_t>(sum[i]);
      gpu::store(output + item * size.C + c, result);
    }
  }
}

template <typename scalar_t, typename sum_t, int Width, int Lanes>
__global__ void __launch_bounds__(gpu::kBlockSize, gpu::kMinBlocks) ms_deform_attn_backward_kernel(
    const scalar_t* __restrict__ grad_output,  // (B, Q, H, C)
    const scalar_t* __restrict__ value,        // (B, S, H, C)
    const int64_t* __restrict__ shapes,        // (L, 2) height, width
    const int64_t* __restrict__ starts,        // (L)
    const typename gpu::Accumulate<scalar_t>::type* __restrict__ locations,
    // (B, Q, H, L, P, 2) x, y
    const typename gpu::Accumulate<scalar_t>::type* __restrict__ weights,  // (B, Q, H, L, P)
    const double* __restrict__ fixed_point_scale,                          // (1), or null
    sum_t* __restrict__ grad_value,                                        // (B, S, H, C), zeros
    typename gpu::Accumulate<scalar_t>::type* __restrict__ grad_locations,
    // (B, Q, H, L, P, 2)
    typename gpu::Accumulate<scalar_t>::type* __restrict__ grad_weights,  // (B, Q, H, L, P)
    MsDeformAttnSize size) {
  using acc_t = typename gpu::Accumulate<scalar_t>::type;
  const double scale = fixed_point_scale == nullptr ? 1.0 : *fixed_point_scale;
  const int lane = threadIdx.x % Lanes;
  const int64_t items = size.B * size.Q * size.H;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (gpu::kBlockSize / Lanes);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * gpu::kBlockSize + threadIdx.x) / Lanes;
  // Shuffles need whole waves: lanes without an item of their own go along with the last one.
  const int64_t rounds = (items + stride - 1) / stride;
  for (int64_t round = 0; round < rounds; ++round) {
    const int64_t own = first + round * stride;
    const bool active = own < items;
    const int64_t item = active ? own : items - 1;
    const int64_t h = item % size.H;
    const int64_t b = item / (size.Q * size.H);
    const int64_t head = (b * size.S * size.H + h) * size.C;
    int64_t at = item * size.L * size.P;
    for (int64_t l = 0; l < size.L; ++l) {
      for (int64_t p = 0; p < size.P; ++p, ++at) {
        Sample<acc_t> sample;
        const acc_t attention = weights[at];
        acc_t dot[4] = {};  // <gradient, pixel> of each corner
        const bool touches = sample.find(shapes + 2 * l, starts[l], size.S, locations[2 * at],
                                         locations[2 * at + 1]);
        if (touches) {
          for (int64_t c = lane * Width; c < size.C; c += Lanes * Width) {
            const auto grad = gpu::load<scalar_t, Width>(grad_output + item * size.C + c);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              if (!sample.inside[k]) continue;
              const int64_t offset = head + sample.row[k] * size.H * size.C + c;
              const auto pixel = gpu::load<scalar_t, Width>(value + offset);
              const acc_t factor = sample.weight[k] * attention;
#pragma unroll
              for (int i = 0; i < Width; ++i) {
                const acc_t g = gpu::to_float(grad.element[i]);
                dot[k] += g * gpu::to_float(pixel.element[i]);
                if (active) add_gradient(grad_value + offset + i, factor * g, scale);
              }
            }
          }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) dot[k] = gpu::group_sum<Lanes>(dot[k]);
        if (!active || lane != 0) continue;
        if (!touches) {
          grad_weights[at] = 0;
          grad_locations[2 * at] = 0;
          grad_locations[2 * at + 1] = 0;
          continue;
        }
        const acc_t fy = sample.fy, fx = sample.fx;
        grad_weights[at] = sample.weight[0] * dot[0] + sample.weight[1] * dot[1] +
                           sample.weight[2] * dot[2] + sample.weight[3] * dot[3];
        grad_locations[2 * at] =
            attention * sample.width * ((1 - fy) * (dot[1] - dot[0]) + fy * (dot[3] - dot[2]));
        grad_locations[2 * at + 1] =
            attention * sample.height * ((1 - fx) * (dot[2] - dot[0]) + fx * (dot[3] - dot[1]));
      }
    }
  }
}

}  // namespace mmcv
