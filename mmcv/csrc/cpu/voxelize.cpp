// Grouping of points into voxels on the CPU.
//
// Cell of a point on axis a: c = floor((p - low) / size), valid if 0 <= c < round((high - low) /
// size) on all three axes; NaN is not valid. Hard mode numbers voxels in the order of their first
// point and keeps the first points of each, all in one pass over the points with a hash table of
// the cells in use.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "check.h"

namespace mmcv {
namespace {

struct Grid {
  float low[3], size[3];
  int64_t cells[3];

  Grid(const std::vector<double>& voxel_size, const std::vector<double>& range) {
    MMCV_CHECK(voxel_size.size() == 3 && range.size() == 6,
               "voxelization: voxel_size must have 3 and coors_range 6 numbers");
    for (int a = 0; a < 3; ++a) {
      low[a] = static_cast<float>(range[a]);
      size[a] = static_cast<float>(voxel_size[a]);
      cells[a] = std::llround((static_cast<float>(range[3 + a]) - low[a]) / size[a]);
    }
  }

  // Writes the cell (x, y, z) of a point; false if it lies outside.
  template <typename acc_t, typename scalar_t>
  bool find(const scalar_t* point, int64_t* cell) const {
    for (int a = 0; a < 3; ++a) {
      const acc_t c = std::floor((static_cast<acc_t>(point[a]) - low[a]) / size[a]);
      if (!(c >= 0 && c < cells[a])) return false;
      cell[a] = static_cast<int64_t>(c);
    }
    return true;
  }
};

Tensor dynamic_voxelize_cpu(const Tensor& points, std::vector<double> voxel_size,
                            std::vector<double> coors_range) {
  const int64_t N = points.size(0), F = points.size(1);
  const Grid grid(voxel_size, coors_range);
  Tensor coors = torch::stable::new_empty(points, {N, 3}, ScalarType::Int);
  int32_t* out = mutable_data<int32_t>(coors);  // (N, 3) z, y, x
  MMCV_DISPATCH_FLOATING("voxelization", points.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* in = data<scalar_t>(points);  // (N, F)
    torch::stable::parallel_for(0, N, 8192, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        int64_t cell[3] = {};
        const bool inside = grid.find<acc_t>(in + n * F, cell);
        for (int a = 0; a < 3; ++a) {
          out[3 * n + a] = inside ? static_cast<int32_t>(cell[2 - a]) : -1;
        }
      }
    });
  });
  return coors;
}

std::tuple<Tensor, Tensor, Tensor> hard_voxelize_cpu(const Tensor& points,
                                                     std::vector<double> voxel_size,
                                                     std::vector<double> coors_range,
                                                     int64_t max_points, int64_t max_voxels) {
  const int64_t N = points.size(0), F = points.size(1);
  const Grid grid(voxel_size, coors_range);
  std::vector<int32_t> coors_found, counts;  // (M, 3) z, y, x and (M)
  std::vector<int64_t> voxel_of(N, -1), slot_of(N, 0);
  std::unordered_map<int64_t, int64_t> voxel_of_cell;
  voxel_of_cell.reserve(static_cast<size_t>(std::min(N, max_voxels)));
  Tensor voxels = points;
  MMCV_DISPATCH_FLOATING("voxelization", points.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* in = data<scalar_t>(points);  // (N, F)
    for (int64_t n = 0; n < N; ++n) {
      int64_t cell[3];
      if (!grid.find<acc_t>(in + n * F, cell)) continue;
      const int64_t key = (cell[2] * grid.cells[1] + cell[1]) * grid.cells[0] + cell[0];
      const auto known = voxel_of_cell.find(key);
      int64_t voxel;
      if (known != voxel_of_cell.end()) {
        voxel = known->second;
      } else {
        voxel = static_cast<int64_t>(counts.size());
        if (voxel >= max_voxels) continue;
        voxel_of_cell.emplace(key, voxel);
        counts.push_back(0);
        for (int a = 2; a >= 0; --a) coors_found.push_back(static_cast<int32_t>(cell[a]));
      }
      if (counts[voxel] >= max_points) continue;
      voxel_of[n] = voxel;
      slot_of[n] = counts[voxel]++;
    }
    const int64_t M = static_cast<int64_t>(counts.size());
    voxels = torch::stable::new_zeros(points, {M, max_points, F});
    scalar_t* out = mutable_data<scalar_t>(voxels);
    for (int64_t n = 0; n < N; ++n) {
      if (voxel_of[n] < 0) continue;
      std::copy(in + n * F, in + (n + 1) * F, out + (voxel_of[n] * max_points + slot_of[n]) * F);
    }
  });
  const int64_t M = static_cast<int64_t>(counts.size());
  Tensor coors = torch::stable::new_empty(points, {M, 3}, ScalarType::Int);
  Tensor num_points = torch::stable::new_empty(points, {M}, ScalarType::Int);
  std::copy(coors_found.begin(), coors_found.end(), mutable_data<int32_t>(coors));
  std::copy(counts.begin(), counts.end(), mutable_data<int32_t>(num_points));
  return {voxels, coors, num_points};
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) {
  m.impl("dynamic_voxelize", TORCH_BOX(&dynamic_voxelize_cpu));
  m.impl("hard_voxelize", TORCH_BOX(&hard_voxelize_cpu));
}

}  // namespace mmcv
