// Intersection over union of rotated rectangles [cx, cy, w, h, angle] on the CPU.
// Geometry: kernels/rotated_overlap.h.
#include <torch/csrc/stable/library.h>

#include "check.h"
#include "kernels/rotated_overlap.h"

namespace mmcv {
namespace {

Tensor box_iou_rotated_cpu(const Tensor& boxes1, const Tensor& boxes2, bool iof, bool aligned,
                           bool clockwise) {
  const int64_t N = boxes1.size(0), M = boxes2.size(0);
  Tensor output =
      aligned ? torch::stable::new_empty(boxes1, {N}) : torch::stable::new_empty(boxes1, {N, M});
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const T* first = data<T>(boxes1);   // (N, 5)
    const T* second = data<T>(boxes2);  // (M, 5)
    T* out = mutable_data<T>(output);
    const T direction = clockwise ? 1 : -1;
    torch::stable::parallel_for(0, output.numel(), 512, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* a = first + 5 * (aligned ? i : i / M);
        const T* b = second + 5 * (aligned ? i : i % M);
        out[i] = overlap(a, b, iof, direction);
      }
    });
  };
  if (boxes1.scalar_type() == ScalarType::Double) {
    run(0.0);
  } else {
    MMCV_CHECK(boxes1.scalar_type() == ScalarType::Float,
               "box_iou_rotated: boxes must be float32 or float64");
    run(0.0f);
  }
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) {
  m.impl("box_iou_rotated", TORCH_BOX(&box_iou_rotated_cpu));
}

}  // namespace mmcv
