#include <torch/csrc/stable/library.h>

#include <optional>
#include <tuple>

#include "kernels/ms_deform_attn.h"
#include "launch.h"

namespace mmcv {
namespace {

MsDeformAttnSize size_of(const Tensor& value, const Tensor& locations) {
  return {value.size(0),     value.size(1),     value.size(2),    value.size(3),
          locations.size(1), locations.size(3), locations.size(4)};
}

// Calls `launch` with the channels that a lane handles at once, `Wide` where C allows it, and the
// lanes of a group: as many as channels need, up to 32.
template <int Wide, typename Launch>
void with_mapping(int64_t C, const Launch& launch) {
  if (C % Wide == 0) {
    const int64_t lanes = C / Wide;
    if (lanes <= 1) return launch.template operator()<Wide, 1>();
    if (lanes <= 2) return launch.template operator()<Wide, 2>();
    if (lanes <= 4) return launch.template operator()<Wide, 4>();
    if (lanes <= 8) return launch.template operator()<Wide, 8>();
    return launch.template operator()<Wide, 16>();
  }
  if (C <= 4) return launch.template operator()<1, 4>();
  return launch.template operator()<1, 32>();
}

// Forward: 16 bytes of values. Backward: 16 bytes of sums, since the atomics of a wave cost more
// the further they lie apart.
template <typename scalar_t>
constexpr int kForwardWide = 16 / sizeof(scalar_t);
template <typename scalar_t>
constexpr int kBackwardWide = 16 / sizeof(typename gpu::Accumulate<scalar_t>::type);

template <typename scalar_t>
struct Forward {
  const Tensor &value, &shapes, &starts, &locations, &weights, &output;
  template <int Width, int Lanes>
  void operator()() const {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    const MsDeformAttnSize size = size_of(value, locations);
    gpu::launch(ms_deform_attn_kernel<scalar_t, Width, Lanes>,
                threads_for(size.B * size.Q * size.H * Lanes, value), data<scalar_t>(value),
                data<int64_t>(shapes), data<int64_t>(starts), data<acc_t>(locations),
                data<acc_t>(weights), mutable_data<scalar_t>(output), size);
  }
};

template <typename scalar_t, typename sum_t>
struct Backward {
  const Tensor &grad_output, &value, &shapes, &starts, &locations, &weights;
  const double* scale;
  const Tensor &grad_value, &grad_locations, &grad_weights;
  template <int Width, int Lanes>
  void operator()() const {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    const MsDeformAttnSize size = size_of(value, locations);
    gpu::launch(ms_deform_attn_backward_kernel<scalar_t, sum_t, Width, Lanes>,
                threads_for(size.B * size.Q * size.H * Lanes, value), data<scalar_t>(grad_output),
                data<scalar_t>(value), data<int64_t>(shapes), data<int64_t>(starts),
                data<acc_t>(locations), data<acc_t>(weights), scale,
                mutable_data<sum_t>(grad_value), mutable_data<acc_t>(grad_locations),
                mutable_data<acc_t>(grad_weights), size);
  }
};

Tensor ms_deform_attn_gpu(const Tensor& value, const Tensor& spatial_shapes,
                          const Tensor& level_start, const Tensor& locations,
                          const Tensor& weights) {
  const torch::stable::accelerator::DeviceGuard guard(value.get_device_index());
  const int64_t B = value.size(0), H = value.size(2), C = value.size(3), Q = locations.size(1);
  Tensor output = torch::stable::new_empty(value, {B, Q, H * C});
  if (output.numel() == 0) return output;
  MMCV_DISPATCH_GPU("ms_deform_attn", value.scalar_type(), [&] {
    with_mapping<kForwardWide<scalar_t>>(
        C, Forward<scalar_t>{value, spatial_shapes, level_start, locations, weights, output});
  });
  check_launch("ms_deform_attn");
  return output;
}

std::tuple<Tensor, Tensor, Tensor> ms_deform_attn_backward_gpu(
    const Tensor& grad_output, const Tensor& value, const Tensor& spatial_shapes,
    const Tensor& level_start, const Tensor& locations, const Tensor& weights,
    const std::optional<Tensor>& fixed_point_scale) {
  const torch::stable::accelerator::DeviceGuard guard(value.get_device_index());
  const int64_t B = value.size(0), S = value.size(1), H = value.size(2), C = value.size(3);
  const ScalarType sum_type =
      fixed_point_scale ? ScalarType::Long : accumulate_type(value.scalar_type());
  Tensor grad_value = torch::stable::new_zeros(value, {B, S, H, C}, sum_type);
  Tensor grad_locations = torch::stable::empty_like(locations);
  Tensor grad_weights = torch::stable::empty_like(weights);
  if (weights.numel() == 0) return {grad_value, grad_locations, grad_weights};
  MMCV_CHECK(C > 0, "ms_deform_attn: value must have channels, got ", C);
  const double* scale = fixed_point_scale ? data<double>(*fixed_point_scale) : nullptr;
  MMCV_DISPATCH_GPU("ms_deform_attn_backward", value.scalar_type(), [&] {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    if (scale != nullptr) {
      with_mapping<kBackwardWide<scalar_t>>(
          C, Backward<scalar_t, int64_t>{grad_output, value, spatial_shapes, level_start, locations,
                                         weights, scale, grad_value, grad_locations, grad_weights});
    } else {
      with_mapping<kBackwardWide<scalar_t>>(
          C, Backward<scalar_t, acc_t>{grad_output, value, spatial_shapes, level_start, locations,
                                       weights, scale, grad_value, grad_locations, grad_weights});
    }
  });
  check_launch("ms_deform_attn_backward");
  return {grad_value, grad_locations, grad_weights};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CUDA, m) {
  m.impl("ms_deform_attn", TORCH_BOX(&ms_deform_attn_gpu));
  m.impl("ms_deform_attn_backward", TORCH_BOX(&ms_deform_attn_backward_gpu));
}

}  // namespace mmcv
