#include <torch/csrc/stable/library.h>

#include "kernels/box_iou_rotated.h"
#include "launch.h"

namespace mmcv {
namespace {

template <typename T>
void launch(const Tensor& boxes1, const Tensor& boxes2, const Tensor& output, bool iof,
            bool aligned, bool clockwise) {
  gpu::launch(box_iou_rotated_kernel<T>, threads_for(output.numel(), boxes1), data<T>(boxes1),
              data<T>(boxes2), mutable_data<T>(output), output.numel(), boxes2.size(0), iof,
              aligned, clockwise ? T(1) : T(-1));
}

Tensor box_iou_rotated_gpu(const Tensor& boxes1, const Tensor& boxes2, bool iof, bool aligned,
                           bool clockwise) {
  const torch::stable::accelerator::DeviceGuard guard(boxes1.get_device_index());
  const int64_t N = boxes1.size(0), M = boxes2.size(0);
  Tensor output =
      aligned ? torch::stable::new_empty(boxes1, {N}) : torch::stable::new_empty(boxes1, {N, M});
  if (output.numel() == 0) return output;
  if (boxes1.scalar_type() == ScalarType::Double) {
    launch<double>(boxes1, boxes2, output, iof, aligned, clockwise);
  } else {
    MMCV_CHECK(boxes1.scalar_type() == ScalarType::Float,
               "box_iou_rotated: boxes must be float32 or float64");
    launch<float>(boxes1, boxes2, output, iof, aligned, clockwise);
  }
  check_launch("box_iou_rotated");
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CUDA, m) {
  m.impl("box_iou_rotated", TORCH_BOX(&box_iou_rotated_gpu));
}

}  // namespace mmcv
