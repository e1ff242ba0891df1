// RoIAlign on the CPU: mean, or largest, of the samples of each bin. Geometry: kernels/roi_grid.h.
//
// Where the samples of a box lie is found once and used for all its channels. Forward: threads
// share the (box, channel) pairs. Backward: threads share the channels and walk the boxes in order,
// so that no two threads add to the same number and the result does not depend on how many there
// are.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "check.h"
#include "kernels/roi_grid.h"

namespace mmcv {
namespace {

constexpr int kTogether = 4;  // channels that share the reading of a sample

// The samples of all bins of one box, bin after bin.
template <typename T>
struct BoxSamples {
  struct Bin {
    size_t end;  // of its samples
    bool all;    // lie in the image
  };
  int64_t image = -1;  // -1: no samples
  T per_sample = 0;    // 1 / samples of a bin, those outside the image included
  std::vector<ClampedSample<T>> samples;
  std::vector<Bin> bins;

  void find(const T* roi, const RoiAlignSize& size, const RoiAlignOptions& options) {
    samples.clear();
    bins.clear();
    RoiGrid<T> grid;
    image = -1;
    if (!grid.find(roi, size, options)) return;
    image = grid.image;
    per_sample = T(1) / static_cast<T>(grid.rows * grid.columns);
    for (int64_t i = 0; i < size.bins_y; ++i) {
      for (int64_t j = 0; j < size.bins_x; ++j) {
        const bool all = grid.visit(
            i, j, size, [&](const ClampedSample<T>& sample) { samples.push_back(sample); });
        bins.push_back({samples.size(), all});
      }
    }
  }
};

template <typename T, typename scalar_t>
T bilinear(const scalar_t* plane, const ClampedSample<T>& sample) {
  T sum = 0;
  for (int k = 0; k < 4; ++k) sum += sample.weight[k] * static_cast<T>(plane[sample.at[k]]);
  return sum;
}

// Sums of the samples begin...end - 1 in N planes of `extent` pixels each.
template <int N, typename T, typename scalar_t>
void sum_samples(const scalar_t* planes, int64_t extent, const BoxSamples<T>& box, size_t begin,
                 size_t end, T* sums) {
  for (int n = 0; n < N; ++n) sums[n] = 0;
  for (size_t s = begin; s < end; ++s) {
    const ClampedSample<T>& sample = box.samples[s];
    for (int n = 0; n < N; ++n) sums[n] += bilinear(planes + n * extent, sample);
  }
}

// The sample with the largest value, the first of several; `end` if those outside, 0, are larger.
template <typename T, typename scalar_t>
size_t find_largest(const scalar_t* plane, const BoxSamples<T>& box, size_t begin, size_t end,
                    bool all, T& value) {
  size_t winner = end;
  for (size_t s = begin; s < end; ++s) {
    const T candidate = bilinear(plane, box.samples[s]);
    if (winner == end || candidate > value) {
      value = candidate;
      winner = s;
    }
  }
  if (winner == end || (!all && !(value > 0))) {
    value = 0;
    return end;
  }
  return winner;
}

Tensor roi_align_cpu(const Tensor& input, const Tensor& rois, int64_t bins_y, int64_t bins_x,
                     double spatial_scale, int64_t sampling_ratio, bool largest, bool aligned) {
  const RoiAlignSize size{input.size(0), input.size(1), input.size(2), input.size(3),
                          rois.size(0),  bins_y,        bins_x};
  const RoiAlignOptions options{spatial_scale, sampling_ratio, largest, aligned};
  const int64_t num_bins = bins_y * bins_x, extent = size.H * size.W;
  Tensor output = torch::stable::new_zeros(input, {size.K, size.C, bins_y, bins_x});
  MMCV_DISPATCH_FLOATING("roi_align", input.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* images = data<scalar_t>(input);  // (B, C, H, W)
    const acc_t* boxes = data<acc_t>(rois);          // (K, 5)
    scalar_t* out = mutable_data<scalar_t>(output);  // (K, C, bins_y, bins_x)
    torch::stable::parallel_for(0, size.K * size.C, 16, [&](int64_t begin, int64_t end) {
      BoxSamples<acc_t> box;
      int64_t known = -1;
      for (int64_t pair = begin; pair < end;) {
        const int64_t k = pair / size.C, channel = pair % size.C;
        if (k != known) box.find(boxes + 5 * k, size, options);
        known = k;
        const int64_t left = std::min(end - pair, size.C - channel);  // channels of this box
        if (box.image < 0) {
          pair += left;
          continue;
        }
        const scalar_t* planes = images + (box.image * size.C + channel) * extent;
        const int64_t together = !largest && left >= kTogether ? kTogether : 1;
        size_t first = 0;
        for (int64_t bin = 0; bin < num_bins; ++bin) {
          const size_t last = box.bins[bin].end;
          acc_t result[kTogether];
          if (largest) {
            find_largest(planes, box, first, last, box.bins[bin].all, result[0]);
          } else if (together == 1) {
            sum_samples<1>(planes, extent, box, first, last, result);
          } else {
            sum_samples<kTogether>(planes, extent, box, first, last, result);
          }
          for (int64_t n = 0; n < together; ++n) {
            const acc_t mean = largest ? result[n] : result[n] * box.per_sample;
            out[(pair + n) * num_bins + bin] = static_cast<scalar_t>(mean);
          }
          first = last;
        }
        pair += together;
      }
    });
  });
  return output;
}

Tensor roi_align_backward_cpu(const Tensor& grad_output, const Tensor& input, const Tensor& rois,
                              double spatial_scale, int64_t sampling_ratio, bool largest,
                              bool aligned, const std::optional<Tensor>& /*fixed_point_scale*/) {
  const RoiAlignSize size{input.size(0), input.size(1),       input.size(2),      input.size(3),
                          rois.size(0),  grad_output.size(2), grad_output.size(3)};
  const RoiAlignOptions options{spatial_scale, sampling_ratio, largest, aligned};
  const int64_t num_bins = size.bins_y * size.bins_x;
  Tensor grad_input = torch::stable::new_zeros(grad_output, {size.B, size.C, size.H, size.W},
                                               accumulate_type(grad_output.scalar_type()));
  MMCV_DISPATCH_FLOATING("roi_align_backward", grad_output.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* grads = data<scalar_t>(grad_output);  // (K, C, bins_y, bins_x)
    const scalar_t* images = data<scalar_t>(input);       // (B, C, H, W); read for largest
    const acc_t* boxes = data<acc_t>(rois);               // (K, 5)
    acc_t* to_images = mutable_data<acc_t>(grad_input);   // (B, C, H, W)
    torch::stable::parallel_for(0, size.C, 1, [&](int64_t begin, int64_t end) {
      BoxSamples<acc_t> box;
      for (int64_t k = 0; k < size.K; ++k) {
        box.find(boxes + 5 * k, size, options);
        if (box.image < 0) continue;
        for (int64_t channel = begin; channel < end; ++channel) {
          const int64_t plane = (box.image * size.C + channel) * size.H * size.W;
          const auto add = [&](const ClampedSample<acc_t>& sample, acc_t factor) {
            for (int n = 0; n < 4; ++n) {
              to_images[plane + sample.at[n]] += factor * sample.weight[n];
            }
          };
          size_t first = 0;
          for (int64_t bin = 0; bin < num_bins; ++bin) {
            const size_t last = box.bins[bin].end;
            const acc_t gradient =
                static_cast<acc_t>(grads[(k * size.C + channel) * num_bins + bin]);
            if (largest) {
              acc_t value = 0;
              const size_t winner =
                  find_largest(images + plane, box, first, last, box.bins[bin].all, value);
              if (winner < last) add(box.samples[winner], gradient);
            } else {
              for (size_t s = first; s < last; ++s) add(box.samples[s], gradient * box.per_sample);
            }
            first = last;
          }
        }
      }
    });
  });
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) {
  m.impl("roi_align", TORCH_BOX(&roi_align_cpu));
  m.impl("roi_align_backward", TORCH_BOX(&roi_align_backward_cpu));
}

}  // namespace mmcv
