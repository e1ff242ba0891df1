// Greedy non-maximum suppression on the CPU.
//
// boxes come sorted by falling score. Walking them, a box that no kept box suppressed is kept, and
// suppresses the later ones with inter / union > threshold. The walk is sequential within a tile of
// boxes; then threads share the later boxes and compare each with those the tile kept. 0 / 0 is
// NaN, which suppresses nothing.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <vector>

#include "check.h"

namespace mmcv {
namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kGrain = 32768;  // comparisons for which a thread is worth waking

template <typename T>
struct Suppress {
  T threshold, offset;

  T area(const T* box) const { return (box[2] - box[0] + offset) * (box[3] - box[1] + offset); }

  bool operator()(const T* a, const T* b) const {
    const T w = std::min(a[2], b[2]) - std::max(a[0], b[0]) + offset;
    const T h = std::min(a[3], b[3]) - std::max(a[1], b[1]) + offset;
    const T inter = std::max(w, T(0)) * std::max(h, T(0));
    return inter / (area(a) + area(b) - inter) > threshold;
  }
};

template <typename T>
void walk(const T* boxes, int64_t count, const Suppress<T>& suppresses,  // boxes: (N, 4)
          bool* keep) {
  std::vector<int64_t> kept;  // of the tile
  for (int64_t first = 0; first < count; first += kTile) {
    const int64_t end = std::min(first + kTile, count);
    kept.clear();
    for (int64_t i = first; i < end; ++i) {
      for (size_t k = 0; k < kept.size() && keep[i]; ++k) {
        keep[i] = !suppresses(boxes + 4 * kept[k], boxes + 4 * i);
      }
      if (keep[i]) kept.push_back(i);
    }
    const int64_t grain = kGrain / static_cast<int64_t>(kept.size() + 1);
    torch::stable::parallel_for(end, count, grain, [&](int64_t begin, int64_t stop) {
      for (int64_t j = begin; j < stop; ++j) {
        for (size_t k = 0; k < kept.size() && keep[j]; ++k) {
          keep[j] = !suppresses(boxes + 4 * kept[k], boxes + 4 * j);
        }
      }
    });
  }
}

Tensor nms_cpu(const Tensor& boxes, double iou_threshold, int64_t offset) {
  const int64_t count = boxes.size(0);
  Tensor keep = torch::stable::new_empty(boxes, {count}, ScalarType::Bool);
  bool* kept = mutable_data<bool>(keep);
  std::fill(kept, kept + count, true);
  if (boxes.scalar_type() == ScalarType::Double) {
    walk(data<double>(boxes), count, Suppress<double>{iou_threshold, double(offset)}, kept);
  } else {
    MMCV_CHECK(boxes.scalar_type() == ScalarType::Float, "nms: boxes must be float32 or float64");
    walk(data<float>(boxes), count, Suppress<float>{float(iou_threshold), float(offset)}, kept);
  }
  return keep;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) { m.impl("nms", TORCH_BOX(&nms_cpu)); }

}  // namespace mmcv
