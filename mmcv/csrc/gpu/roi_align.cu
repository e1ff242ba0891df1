#include <torch/csrc/stable/library.h>

#include <optional>

#include "kernels/roi_align.h"
#include "launch.h"

namespace mmcv {
namespace {

Tensor roi_align_gpu(const Tensor& input, const Tensor& rois, int64_t bins_y, int64_t bins_x,
                     double spatial_scale, int64_t sampling_ratio, bool largest, bool aligned) {
  const torch::stable::accelerator::DeviceGuard guard(input.get_device_index());
  const RoiAlignSize size{input.size(0), input.size(1), input.size(2), input.size(3),
                          rois.size(0),  bins_y,        bins_x};
  Tensor output = torch::stable::new_empty(input, {size.K, size.C, bins_y, bins_x});
  if (output.numel() == 0) return output;
  MMCV_DISPATCH_GPU("roi_align", input.scalar_type(), [&] {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    gpu::launch(roi_align_kernel<scalar_t>, threads_for(output.numel(), input),
                data<scalar_t>(input), data<acc_t>(rois), mutable_data<scalar_t>(output), size,
                RoiAlignOptions{spatial_scale, sampling_ratio, largest, aligned});
  });
  check_launch("roi_align");
  return output;
}

Tensor roi_align_backward_gpu(const Tensor& grad_output, const Tensor& input, const Tensor& rois,
                              double spatial_scale, int64_t sampling_ratio, bool largest,
                              bool aligned, const std::optional<Tensor>& fixed_point_scale) {
  const torch::stable::accelerator::DeviceGuard guard(grad_output.get_device_index());
  const RoiAlignSize size{input.size(0), input.size(1),       input.size(2),      input.size(3),
                          rois.size(0),  grad_output.size(2), grad_output.size(3)};
  const ScalarType sum_type =
      fixed_point_scale ? ScalarType::Long : accumulate_type(grad_output.scalar_type());
  Tensor grad_input =
      torch::stable::new_zeros(grad_output, {size.B, size.C, size.H, size.W}, sum_type);
  if (grad_output.numel() == 0) return grad_input;
  const double* scale = fixed_point_scale ? data<double>(*fixed_point_scale) : nullptr;
  MMCV_DISPATCH_GPU("roi_align_backward", grad_output.scalar_type(), [&] {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    const auto launch = [&](auto kernel, auto* sums) {
      gpu::launch(kernel, threads_for(grad_output.numel(), grad_output),
                  data<scalar_t>(grad_output), data<scalar_t>(input), data<acc_t>(rois), scale,
                  sums, size, RoiAlignOptions{spatial_scale, sampling_ratio, largest, aligned});
    };
    if (scale != nullptr) {
      launch(roi_align_backward_kernel<scalar_t, int64_t>, mutable_data<int64_t>(grad_input));
    } else {
      launch(roi_align_backward_kernel<scalar_t, acc_t>, mutable_data<acc_t>(grad_input));
    }
  });
  check_launch("roi_align_backward");
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CUDA, m) {
  m.impl("roi_align", TORCH_BOX(&roi_align_gpu));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward_gpu));
}

}  // namespace mmcv
