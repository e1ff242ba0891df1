#include <torch/csrc/stable/library.h>

#include <algorithm>

#include "kernels/nms.h"
#include "launch.h"

namespace mmcv {
namespace {

constexpr int64_t kMaxGridY = 65535;

template <typename T>
void launch(const Tensor& boxes, const Tensor& mask, const Tensor& removed, const Tensor& keep,
            double iou_threshold, int64_t offset) {
  const int64_t count = boxes.size(0), words = removed.size(0);
  const dim3 grid(static_cast<unsigned>(words), static_cast<unsigned>(std::min(words, kMaxGridY)));
  const gpu::Stream stream = current_stream(boxes);
  gpu::launch(nms_mask_kernel<T>, {grid, kNmsTile, stream}, data<T>(boxes),
              mutable_data<int64_t>(mask), count, words, static_cast<T>(iou_threshold),
              static_cast<T>(offset));
  gpu::launch(nms_reduce_kernel, {1, kNmsReduceSize, stream}, data<int64_t>(mask),
              mutable_data<int64_t>(removed), mutable_data<bool>(keep), count, words);
}

Tensor nms_gpu(const Tensor& boxes, double iou_threshold, int64_t offset) {
  const torch::stable::accelerator::DeviceGuard guard(boxes.get_device_index());
  const int64_t count = boxes.size(0), words = (count + kNmsTile - 1) / kNmsTile;
  Tensor keep = torch::stable::new_empty(boxes, {count}, ScalarType::Bool);
  if (count == 0) return keep;
  const Tensor mask = torch::stable::new_empty(boxes, {count, words}, ScalarType::Long);
  const Tensor removed = torch::stable::new_zeros(boxes, {words}, ScalarType::Long);
  if (boxes.scalar_type() == ScalarType::Double) {
    launch<double>(boxes, mask, removed, keep, iou_threshold, offset);
  } else {
    MMCV_CHECK(boxes.scalar_type() == ScalarType::Float, "nms: boxes must be float32 or float64");
    launch<float>(boxes, mask, removed, keep, iou_threshold, offset);
  }
  check_launch("nms");
  return keep;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CUDA, m) { m.impl("nms", TORCH_BOX(&nms_gpu)); }

}  // namespace mmcv
