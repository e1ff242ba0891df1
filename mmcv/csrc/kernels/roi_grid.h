// The grid of bilinear samples that RoIAlign takes in each bin of a box (He et al. 2017, section
// 3), for the CPU and the GPU.
//
// Sample r of the `rows` in bin i lies at y = top + i * bin_height + (r + 1/2) * bin_height / rows;
// the same along x. Positions in [-1, size] repeat the border of the image, beyond it is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "portable.h"

namespace mmcv {

struct RoiAlignSize {
  int64_t B, C, H, W, K, bins_y, bins_x;
};

struct RoiAlignOptions {
  double spatial_scale;
  int64_t sampling_ratio;  // 0: as many samples as a bin has pixels
  bool largest, aligned;
};

// The pixels of one sample, as offsets in an image of a channel, and their bilinear weights.
template <typename T>
struct ClampedSample {
  int64_t at[4];
  T weight[4];

  // False if the sample lies outside the image.
  MMCV_HOST_DEVICE bool find(T y, T x, int64_t H, int64_t W) {
    if (!(y >= -1 && y <= static_cast<T>(H) && x >= -1 && x <= static_cast<T>(W))) return false;
    y = y > 0 ? y : T(0);
    x = x > 0 ? x : T(0);
    int64_t top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
    if (top >= H - 1) y = static_cast<T>(top = H - 1);
    if (left >= W - 1) x = static_cast<T>(left = W - 1);
    const int64_t below = top + 1 < H ? top + 1 : top, right = left + 1 < W ? left + 1 : left;
    const T fy = y - static_cast<T>(top), fx = x - static_cast<T>(left);
    at[0] = top * W + left;
    at[1] = top * W + right;
    at[2] = below * W + left;
    at[3] = below * W + right;
    weight[0] = (1 - fy) * (1 - fx);
    weight[1] = (1 - fy) * fx;
    weight[2] = fy * (1 - fx);
    weight[3] = fy * fx;
    return true;
  }
};

template <typename T>
struct RoiGrid {
  int64_t image;  // index in the batch
  T top, left, bin_height, bin_width;
  int64_t rows, columns;  // samples of a bin

  // Corners must lie within this many pixels: what is larger counts samples wrongly in float32.
  static constexpr T kFarthest = 1 << 24;

  // False for boxes without samples: of negative size, of no size if the number of samples follows
  // from it, with corners that are NaN or too far away, or of an image that does not exist.
  MMCV_HOST_DEVICE bool find(const T* roi, const RoiAlignSize& size,
                             const RoiAlignOptions& options) {
    const T scale = static_cast<T>(options.spatial_scale), shift = options.aligned ? T(0.5) : T(0);
    left = roi[1] * scale - shift;
    top = roi[2] * scale - shift;
    const T right = roi[3] * scale - shift, bottom = roi[4] * scale - shift;
    const bool near = size.H > 0 && size.W > 0 && std::abs(left) <= kFarthest &&
                      std::abs(top) <= kFarthest && std::abs(right) <= kFarthest &&
                      std::abs(bottom) <= kFarthest;
    if (!near || !(roi[0] > -1 && roi[0] < static_cast<T>(size.B))) return false;
    image = static_cast<int64_t>(roi[0]);
    T width = right - left, height = bottom - top;
    if (!options.aligned) {
      width = width > 1 ? width : T(1);
      height = height > 1 ? height : T(1);
    }
    if (width < 0 || height < 0) return false;
    bin_height = height / static_cast<T>(size.bins_y);
    bin_width = width / static_cast<T>(size.bins_x);
    rows = columns = options.sampling_ratio;
    if (options.sampling_ratio <= 0) {
      rows = static_cast<int64_t>(std::ceil(bin_height));
      columns = static_cast<int64_t>(std::ceil(bin_width));
    }
    return rows > 0 && columns > 0;
  }

  // Calls `body(sample)` for the samples of bin (i, j) that lie in the image, row after row; true
  // if all of them do. Takes no longer for boxes that are larger than the image.
  template <typename Body>
  MMCV_HOST_DEVICE bool visit(int64_t i, int64_t j, const RoiAlignSize& size,
                              const Body& body) const {
    const T y0 = top + static_cast<T>(i) * bin_height, x0 = left + static_cast<T>(j) * bin_width;
    int64_t first_row, end_row, first_column, end_column, inside = 0;
    bound(y0, bin_height, rows, size.H, first_row, end_row);
    bound(x0, bin_width, columns, size.W, first_column, end_column);
    for (int64_t r = first_row; r < end_row; ++r) {
      const T y = y0 + (static_cast<T>(r) + T(0.5)) * bin_height / static_cast<T>(rows);
      for (int64_t c = first_column; c < end_column; ++c) {
        const T x = x0 + (static_cast<T>(c) + T(0.5)) * bin_width / static_cast<T>(columns);
        ClampedSample<T> sample;
        if (!sample.find(y, x, size.H, size.W)) continue;
        body(sample);
        ++inside;
      }
    }
    return inside == rows * columns;
  }

 private:
  // The samples first...end - 1 of a bin, one more at each side, may lie in [-1, extent].
  static MMCV_HOST_DEVICE void bound(T start, T length, int64_t count, int64_t extent,
                                     int64_t& first, int64_t& end) {
    first = 0;
    end = count;
    const T per_pixel = static_cast<T>(count) / length;
    if (!(per_pixel <= kFarthest)) return;  // a bin of almost no size: its samples coincide
    const T low = (-1 - start) * per_pixel - T(1.5);
    const T high = (static_cast<T>(extent) - start) * per_pixel + T(1.5);
    if (low > 0) first = low < static_cast<T>(count) ? static_cast<int64_t>(low) : count;
    if (high < static_cast<T>(count)) end = high > 0 ? static_cast<int64_t>(high) : 0;
  }
};

}  // namespace mmcv
