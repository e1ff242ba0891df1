// Sigmoid focal loss of one logit x (Lin et al. 2017, equation 5), for the CPU and the GPU.
//
// With z = x for the target class and z = -x for the others, the probability p = sigmoid(z) of
// being right and f = alpha or 1 - alpha:
//
//   loss = -f (1 - p)^gamma log p,   d loss / dz = -f (1 - p)^gamma (1 - p - gamma p log p)
//
// All of it comes from e = exp(-|z|): log p = -log(1 + e) + min(z, 0) is finite for every finite
// logit. `Math` says how to compute exp of numbers below 0 and log(1 + e) for 0...1.
#pragma once

#include <cmath>

#include "portable.h"

namespace mmcv {

template <typename acc_t>
struct StandardMath {
  static MMCV_HOST_DEVICE acc_t exp(acc_t x) { return std::exp(x); }
  static MMCV_HOST_DEVICE acc_t log1p(acc_t x) { return std::log1p(x); }
};

// `Square` says before the program runs that gamma is 2.
template <typename acc_t, typename Math = StandardMath<acc_t>, bool Square = false>
struct Focal {
  acc_t gamma, alpha;

  MMCV_HOST_DEVICE acc_t loss(acc_t x, bool positive) const {
    const Parts parts(positive ? x : -x);
    return factor(positive) * power(parts.wrong) * parts.surprise;
  }

  MMCV_HOST_DEVICE acc_t gradient(acc_t x, bool positive) const {
    const Parts parts(positive ? x : -x);
    const acc_t slope = factor(positive) * power(parts.wrong) *
                        (parts.wrong + gamma * parts.right * parts.surprise);
    return positive ? -slope : slope;
  }

 private:
  struct Parts {
    acc_t right, wrong, surprise;  // p, 1 - p, -log p

    MMCV_HOST_DEVICE explicit Parts(acc_t z) {
      const acc_t size = std::abs(z), e = Math::exp(-size), likely = 1 / (1 + e);
      right = (z > 0 ? acc_t(1) : e) * likely;
      wrong = (z > 0 ? e : acc_t(1)) * likely;
      surprise = Math::log1p(e) + (size - z) / 2;
    }
  };

  MMCV_HOST_DEVICE acc_t factor(bool positive) const { return positive ? alpha : 1 - alpha; }
  MMCV_HOST_DEVICE acc_t power(acc_t p) const {
    return Square || gamma == 2 ? p * p : std::pow(p, gamma);
  }
};

}  // namespace mmcv
