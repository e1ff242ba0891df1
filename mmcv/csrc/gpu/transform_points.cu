#include <torch/csrc/stable/library.h>

#include <vector>

#include "kernels/transform_points.h"
#include "launch.h"

namespace mmcv {
namespace {

Tensor transform_points_gpu(const Tensor& points, const Tensor& matrices) {
  const torch::stable::accelerator::DeviceGuard guard(points.get_device_index());
  const int64_t batch_dims = points.dim() - 1;
  MMCV_CHECK(batch_dims <= kMaxBatchDims, "transform_points: points must have at most ",
             kMaxBatchDims + 1, " dimensions, got ", points.dim());
  const int64_t D = points.size(batch_dims);
  const int64_t R = matrices.size(batch_dims), C = matrices.size(batch_dims + 1);
  TransformPointsLayout layout = {};
  layout.batch_dims = static_cast<int>(batch_dims);
  layout.total = 1;
  layout.component = points.stride(batch_dims);
  layout.row = matrices.stride(batch_dims);
  layout.column = matrices.stride(batch_dims + 1);
  std::vector<int64_t> sizes(batch_dims);
  for (int64_t d = 0; d < batch_dims; ++d) {
    sizes[d] = points.size(d) == 1 ? matrices.size(d) : points.size(d);
    layout.size[d] = sizes[d];
    layout.point_step[d] = points.size(d) == 1 ? 0 : points.stride(d);
    layout.matrix_step[d] = matrices.size(d) == 1 ? 0 : matrices.stride(d);
    layout.total *= sizes[d];
  }
  sizes.push_back(R);
  Tensor output = torch::stable::new_empty(points, sizes);
  if (output.numel() == 0) return output;
  MMCV_DISPATCH_GPU("transform_points", points.scalar_type(), [&] {
    using acc_t = typename gpu::Accumulate<scalar_t>::type;
    const auto launch = [&](auto kernel) {
      gpu::launch(kernel, threads_for(layout.total, points), data<scalar_t>(points),
                  data<acc_t>(matrices), mutable_data<scalar_t>(output), layout);
    };
    if (D == 3 && R == 3 && C == 3) {
      launch(transform_points_kernel<scalar_t, 3, 3, false>);
    } else if (D == 3 && R == 3 && C == 4) {
      launch(transform_points_kernel<scalar_t, 3, 3, true>);
    } else if (D == 3 && R == 4 && C == 3) {
      launch(transform_points_kernel<scalar_t, 3, 4, false>);
    } else if (D == 4 && R == 4 && C == 4) {
      launch(transform_points_kernel<scalar_t, 4, 4, false>);
    } else if (D == 4 && R == 3 && C == 4) {
      launch(transform_points_kernel<scalar_t, 4, 3, false>);
    } else {
      MMCV_CHECK(false, "transform_points: no kernel for points of ", D,
                 " numbers and matrices of ", R, " x ", C);
    }
  });
  check_launch("transform_points");
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CUDA, m) {
  m.impl("transform_points", TORCH_BOX(&transform_points_gpu));
}

}  // namespace mmcv
