#include <torch/csrc/stable/library.h>

#include <optional>

#include "kernels/sigmoid_focal_loss.h"
#include "launch.h"

namespace mmcv {
namespace {

Tensor launch(const Tensor* grad_output, const Tensor& input, const Tensor& target,
              const std::optional<Tensor>& weight, double gamma, double alpha) {
  const torch::stable::accelerator::DeviceGuard guard(input.get_device_index());
  Tensor output = torch::stable::empty_like(input);
  if (output.numel() == 0) return output;
  MMCV_DISPATCH_GPU("sigmoid_focal_loss", input.scalar_type(), [&] {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    gpu::launch(sigmoid_focal_loss_kernel<scalar_t>, threads_for(input.numel(), input),
                grad_output ? data<scalar_t>(*grad_output) : nullptr, data<scalar_t>(input),
                data<int64_t>(target), weight ? data<scalar_t>(*weight) : nullptr,
                mutable_data<scalar_t>(output), input.size(0), input.size(1),
                Focal<acc_t>{static_cast<acc_t>(gamma), static_cast<acc_t>(alpha)});
  });
  check_launch("sigmoid_focal_loss");
  return output;
}

Tensor sigmoid_focal_loss_gpu(const Tensor& input, const Tensor& target,
                              const std::optional<Tensor>& weight, double gamma, double alpha) {
  return launch(nullptr, input, target, weight, gamma, alpha);
}

Tensor sigmoid_focal_loss_backward_gpu(const Tensor& grad_output, const Tensor& input,
                                       const Tensor& target, const std::optional<Tensor>& weight,
                                       double gamma, double alpha) {
  return launch(&grad_output, input, target, weight, gamma, alpha);
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CUDA, m) {
  m.impl("sigmoid_focal_loss", TORCH_BOX(&sigmoid_focal_loss_gpu));
  m.impl("sigmoid_focal_loss_backward", TORCH_BOX(&sigmoid_focal_loss_backward_gpu));
}

}  // namespace mmcv
