// Multi-scale deformable attention on the CPU. Formula and shapes: kernels/ms_deform_attn.h.
//
// Forward: threads share the queries. Backward: threads share the (batch, head) pairs, each of
// which owns its part of the gradient of the value, so that no two threads add to the same number
// and the result does not depend on their number. The inner loop runs over the channels of a head,
// which lie next to each other in memory.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "check.h"

namespace mmcv {
namespace {

struct Level {
  int64_t height, width, start;
};

std::vector<Level> read_levels(const Tensor& spatial_shapes, const Tensor& level_start,
                               int64_t num_values) {
  const int64_t* shapes = data<int64_t>(spatial_shapes);  // (L, 2)
  const int64_t* starts = data<int64_t>(level_start);     // (L)
  std::vector<Level> levels(level_start.size(0));
  for (size_t l = 0; l < levels.size(); ++l) {
    levels[l] = {shapes[2 * l], shapes[2 * l + 1], starts[l]};
    const Level& level = levels[l];
    MMCV_CHECK(level.height >= 0 && level.width >= 0 && level.start >= 0 &&
                   level.start + level.height * level.width <= num_values,
               "ms_deform_attn: level ", l, " must lie within the ", num_values,
               " rows of value, got rows ", level.start, " to ",
               level.start + level.height * level.width);
  }
  return levels;
}

// The four neighbours of a sample: rows of the level (-1 outside the image) and bilinear weights.
template <typename acc_t>
struct Corners {
  int64_t row[4];
  acc_t weight[4];
  acc_t fy, fx;

  // False if the sample touches no pixel; NaN and infinite locations touch none.
  bool find(const Level& level, acc_t loc_x, acc_t loc_y) {
    const acc_t y = loc_y * level.height - acc_t(0.5);
    const acc_t x = loc_x * level.width - acc_t(0.5);
    if (!(y > -1 && x > -1 && y < level.height && x < level.width)) return false;
    const int64_t y0 = static_cast<int64_t>(std::floor(y));
    const int64_t x0 = static_cast<int64_t>(std::floor(x));
    fy = y - y0;
    fx = x - x0;
    const bool top = y0 >= 0, bottom = y0 + 1 < level.height;
    const bool left = x0 >= 0, right = x0 + 1 < level.width;
    const int64_t first = level.start + y0 * level.width + x0;
    row[0] = top && left ? first : -1;
    row[1] = top && right ? first + 1 : -1;
    row[2] = bottom && left ? first + level.width : -1;
    row[3] = bottom && right ? first + level.width + 1 : -1;
    weight[0] = (1 - fy) * (1 - fx);
    weight[1] = (1 - fy) * fx;
    weight[2] = fy * (1 - fx);
    weight[3] = fy * fx;
    return true;
  }
};

Tensor ms_deform_attn_cpu(const Tensor& value, const Tensor& spatial_shapes,
                          const Tensor& level_start, const Tensor& locations,
                          const Tensor& weights) {
  const int64_t B = value.size(0), S = value.size(1), H = value.size(2), C = value.size(3);
  const int64_t Q = locations.size(1), L = locations.size(3), P = locations.size(4);
  Tensor output = torch::stable::new_empty(value, {B, Q, H * C});
  const std::vector<Level> levels = read_levels(spatial_shapes, level_start, S);

  MMCV_DISPATCH_FLOATING("ms_deform_attn", value.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* values = data<scalar_t>(value);  // (B, S, H, C)
    const acc_t* locs = data<acc_t>(locations);      // (B, Q, H, L, P, 2)
    const acc_t* attention = data<acc_t>(weights);   // (B, Q, H, L, P)
    scalar_t* out = mutable_data<scalar_t>(output);  // (B, Q, H, C)
    torch::stable::parallel_for(0, B * Q, 8, [&](int64_t begin, int64_t end) {
      std::vector<acc_t> sum(C);
      for (int64_t item = begin * H; item < end * H; ++item) {
        const int64_t b = item / (Q * H), h = item % H;
        const scalar_t* head = values + (b * S * H + h) * C;
        std::fill(sum.begin(), sum.end(), acc_t(0));
        for (int64_t lp = 0; lp < L * P; ++lp) {
          const int64_t at = item * L * P + lp;
          Corners<acc_t> corners;
          if (!corners.find(levels[lp / P], locs[2 * at], locs[2 * at + 1])) continue;
          for (int k = 0; k < 4; ++k) {
            if (corners.row[k] < 0) continue;
            const scalar_t* pixel = head + corners.row[k] * H * C;
            const acc_t factor = corners.weight[k] * attention[at];
            for (int64_t c = 0; c < C; ++c) sum[c] += factor * static_cast<acc_t>(pixel[c]);
          }
        }
        for (int64_t c = 0; c < C; ++c) out[item * C + c] = static_cast<scalar_t>(sum[c]);
      }
    });
  });
  return output;
}

std::tuple<Tensor, Tensor, Tensor> ms_deform_attn_backward_cpu(
    const Tensor& grad_output, const Tensor& value, const Tensor& spatial_shapes,
    const Tensor& level_start, const Tensor& locations, const Tensor& weights,
    const std::optional<Tensor>& /*fixed_point_scale*/) {
  const int64_t B = value.size(0), S = value.size(1), H = value.size(2), C = value.size(3);
  const int64_t Q = locations.size(1), L = locations.size(3), P = locations.size(4);
  Tensor grad_value =
      torch::stable::new_zeros(value, {B, S, H, C}, accumulate_type(value.scalar_type()));
  Tensor grad_locations = torch::stable::new_zeros(locations, {B, Q, H, L, P, 2});
  Tensor grad_weights = torch::stable::new_zeros(weights, {B, Q, H, L, P});
  const std::vector<Level> levels = read_levels(spatial_shapes, level_start, S);

  MMCV_DISPATCH_FLOATING("ms_deform_attn", value.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* values = data<scalar_t>(value);         // (B, S, H, C)
    const scalar_t* grads = data<scalar_t>(grad_output);    // (B, Q, H, C)
    const acc_t* locs = data<acc_t>(locations);             // (B, Q, H, L, P, 2)
    const acc_t* attention = data<acc_t>(weights);          // (B, Q, H, L, P)
    acc_t* to_value = mutable_data<acc_t>(grad_value);      // (B, S, H, C)
    acc_t* to_locs = mutable_data<acc_t>(grad_locations);   // (B, Q, H, L, P, 2)
    acc_t* to_weights = mutable_data<acc_t>(grad_weights);  // (B, Q, H, L, P)
    torch::stable::parallel_for(0, B * H, 1, [&](int64_t begin, int64_t end) {
      std::vector<acc_t> grad(C);
      for (int64_t pair = begin; pair < end; ++pair) {
        const int64_t b = pair / H, h = pair % H;
        const int64_t first = (b * S * H + h) * C;
        for (int64_t q = 0; q < Q; ++q) {
          const int64_t item = (b * Q + q) * H + h;
          for (int64_t c = 0; c < C; ++c) grad[c] = static_cast<acc_t>(grads[item * C + c]);
          for (int64_t lp = 0; lp < L * P; ++lp) {
            const int64_t at = item * L * P + lp;
            const Level& level = levels[lp / P];
            Corners<acc_t> corners;
            if (!corners.find(level, locs[2 * at], locs[2 * at + 1])) continue;
            acc_t dot[4] = {0, 0, 0, 0};  // <grad, pixel> of each corner
            for (int k = 0; k < 4; ++k) {
              if (corners.row[k] < 0) continue;
              const int64_t offset = first + corners.row[k] * H * C;
              const scalar_t* pixel = values + offset;
              acc_t* target = to_value + offset;
              const acc_t factor = corners.weight[k] * attention[at];
              acc_t sum = 0;
              for (int64_t c = 0; c < C; ++c) {
                sum += grad[c] * static_cast<acc_t>(pixel[c]);
                target[c] += factor * grad[c];
              }
              dot[k] = sum;
            }
            const acc_t fy = corners.fy, fx = corners.fx;
            to_weights[at] = corners.weight[0] * dot[0] + corners.weight[1] * dot[1] +
                             corners.weight[2] * dot[2] + corners.weight[3] * dot[3];
            to_locs[2 * at] = attention[at] * level.width *
                              ((1 - fy) * (dot[1] - dot[0]) + fy * (dot[3] - dot[2]));
            to_locs[2 * at + 1] = attention[at] * level.height *
                                  ((1 - fx) * (dot[2] - dot[0]) + fx * (dot[3] - dot[1]));
          }
        }
      }
    });
  });
  return {grad_value, grad_locations, grad_weights};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) {
  m.impl("ms_deform_attn", TORCH_BOX(&ms_deform_attn_cpu));
  m.impl("ms_deform_attn_backward", TORCH_BOX(&ms_deform_attn_backward_cpu));
}

}  // namespace mmcv
