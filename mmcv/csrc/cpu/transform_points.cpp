// Matrices applied to points on the CPU. Formula: kernels/transform_points.h.
//
// Threads share the points and walk them in memory order. Batch dimensions over which both inputs
// go on with the same step are merged first, so that the innermost loop, over the points of one
// matrix, is long and keeps the matrix in registers.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "check.h"

namespace mmcv {
namespace {

struct Batch {
  int64_t size, point_step, matrix_step;  // elements; 0 where an input broadcasts
};

// Of the result, outermost first; at least one.
std::vector<Batch> merge_batches(const Tensor& points, const Tensor& matrices) {
  std::vector<Batch> merged = {{1, 0, 0}};
  for (int64_t d = 0; d < points.dim() - 1; ++d) {
    const Batch next{points.size(d) == 1 ? matrices.size(d) : points.size(d),
                     points.size(d) == 1 ? 0 : points.stride(d),
                     matrices.size(d) == 1 ? 0 : matrices.stride(d)};
    Batch& last = merged.back();
    if (last.size == 1) {
      last = next;
    } else if (last.point_step == next.point_step * next.size &&
               last.matrix_step == next.matrix_step * next.size) {
      last = {last.size * next.size, next.point_step, next.matrix_step};
    } else if (next.size != 1) {
      merged.push_back(next);
    }
  }
  return merged;
}

template <typename acc_t>
struct Matrix {
  const acc_t* data;
  int64_t row, column;  // steps
  bool affine;
};

template <int D, int R, typename scalar_t, typename acc_t>
void transform(const scalar_t* point,  // (count, D), any strides
               int64_t step, int64_t component, const Matrix<acc_t>& from,  // (R, D or D + 1)
               scalar_t* out,                                               // (count, R)
               int64_t count) {
  acc_t matrix[R][D], shift[R];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < D; ++c) matrix[r][c] = from.data[r * from.row + c * from.column];
    shift[r] = from.affine ? from.data[r * from.row + D * from.column] : acc_t(0);
  }
  for (int64_t i = 0; i < count; ++i, point += step, out += R) {
    acc_t p[D];
    for (int c = 0; c < D; ++c) p[c] = static_cast<acc_t>(point[c * component]);
    for (int r = 0; r < R; ++r) {
      acc_t sum = shift[r];
      for (int c = 0; c < D; ++c) sum += matrix[r][c] * p[c];
      out[r] = static_cast<scalar_t>(sum);
    }
  }
}

Tensor transform_points_cpu(const Tensor& points, const Tensor& matrices) {
  const int64_t batch_dims = points.dim() - 1;
  const int64_t D = points.size(batch_dims), R = matrices.size(batch_dims);
  const bool affine = matrices.size(batch_dims + 1) == D + 1;
  std::vector<int64_t> sizes(batch_dims);
  for (int64_t d = 0; d < batch_dims; ++d) {
    sizes[d] = points.size(d) == 1 ? matrices.size(d) : points.size(d);
  }
  sizes.push_back(R);
  Tensor output = torch::stable::new_empty(points, sizes);
  if (output.numel() == 0) return output;
  const std::vector<Batch> batches = merge_batches(points, matrices);
  const Batch inner = batches.back();

  MMCV_DISPATCH_FLOATING("transform_points", points.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const auto run = [&](auto kernel) {
      const scalar_t* in = data<scalar_t>(points);       // (..., D), any strides
      const acc_t* matrix_data = data<acc_t>(matrices);  // (..., R, D or D + 1), any strides
      scalar_t* out = mutable_data<scalar_t>(output);    // (..., R)
      const int64_t component = points.stride(batch_dims);
      Matrix<acc_t> matrix{nullptr, matrices.stride(batch_dims), matrices.stride(batch_dims + 1),
                           affine};
      torch::stable::parallel_for(0, output.numel() / R, 4096, [&](int64_t begin, int64_t end) {
        Matrix<acc_t> current = matrix;
        for (int64_t i = begin; i < end;) {
          int64_t point_at = 0, matrix_at = 0, rest = i;
          for (size_t d = batches.size(); d-- > 0;) {
            point_at += rest % batches[d].size * batches[d].point_step;
            matrix_at += rest % batches[d].size * batches[d].matrix_step;
            rest /= batches[d].size;
          }
          const int64_t same = inner.matrix_step == 0 ? inner.size - i % inner.size : 1;
          const int64_t count = std::min(same, end - i);
          current.data = matrix_data + matrix_at;
          kernel(in + point_at, inner.point_step, component, current, out + i * R, count);
          i += count;
        }
      });
    };
    if (D == 3 && R == 3) {
      run(transform<3, 3, scalar_t, acc_t>);
    } else if (D == 3 && R == 4) {
      run(transform<3, 4, scalar_t, acc_t>);
    } else if (D == 4 && R == 3) {
      run(transform<4, 3, scalar_t, acc_t>);
    } else {
      MMCV_CHECK(D == 4 && R == 4, "transform_points: no kernel for points of ", D,
                 " numbers and matrices of ", R, " rows");
      run(transform<4, 4, scalar_t, acc_t>);
    }
  });
  return output;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) {
  m.impl("transform_points", TORCH_BOX(&transform_points_cpu));
}

}  // namespace mmcv
