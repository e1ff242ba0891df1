// Sigmoid focal loss on the CPU. Formula: kernels/focal.h.
//
// Threads share the rows. All logits are first taken for those of other classes, in one loop over
// memory that vectorises; then the logit of the target class of each row is done again.
#include <torch/csrc/stable/library.h>

#include <optional>
#include <type_traits>

#include "check.h"
#include "kernels/focal.h"
#include "vector_math.h"

namespace mmcv {
namespace {

// Calls `run` with the loss of these parameters.
template <typename acc_t, typename Run>
void with_focal(double gamma, double alpha, const Run& run) {
  using Math = std::conditional_t<std::is_same_v<acc_t, float>, VectorMath, StandardMath<acc_t>>;
  const acc_t g = static_cast<acc_t>(gamma), a = static_cast<acc_t>(alpha);
  if (gamma == 2) {
    run(Focal<acc_t, Math, true>{g, a});
  } else {
    run(Focal<acc_t, Math, false>{g, a});
  }
}

// Writes `function(element, logit, whether the class is the target)`, times the weight of the row.
template <typename scalar_t, typename Function>
void for_each_logit(const Tensor& input, const Tensor& target, const std::optional<Tensor>& weight,
                    const Tensor& output, const Function& function) {
  using acc_t = typename Accumulate<scalar_t>::type;
  const int64_t N = input.size(0), C = input.size(1);
  const scalar_t* logits = data<scalar_t>(input);                        // (N, C)
  const int64_t* classes = data<int64_t>(target);                        // (N)
  const scalar_t* factors = weight ? data<scalar_t>(*weight) : nullptr;  // (C)
  scalar_t* out = mutable_data<scalar_t>(output);                        // (N, C)
  torch::stable::parallel_for(0, N, 512, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * C; at < end * C; ++at) {
      out[at] = static_cast<scalar_t>(function(at, static_cast<acc_t>(logits[at]), false));
    }
    for (int64_t n = begin; n < end; ++n) {
      const int64_t label = classes[n];
      if (label < 0 || label >= C) continue;
      const int64_t positive = n * C + label;
      const auto write = [&](int64_t at, acc_t factor) {
        const acc_t logit = static_cast<acc_t>(logits[at]);
        out[at] = static_cast<scalar_t>(factor * function(at, logit, at == positive));
      };
      if (factors == nullptr) {
        write(positive, 1);
      } else {
        for (int64_t c = 0; c < C; ++c) write(n * C + c, static_cast<acc_t>(factors[label]));
      }
    }
  });
}

Tensor sigmoid_focal_loss_cpu(const Tensor& input, const Tensor& target,
                              const std::optional<Tensor>& weight, double gamma, double alpha) {
  Tensor output = torch::stable::empty_like(input);
  MMCV_DISPATCH_FLOATING("sigmoid_focal_loss", input.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    with_focal<acc_t>(gamma, alpha, [&](auto focal) {
      for_each_logit<scalar_t>(
          input, target, weight, output,
          [focal](int64_t, acc_t x, bool positive) { return focal.loss(x, positive); });
    });
  });
  return output;
}

Tensor sigmoid_focal_loss_backward_cpu(const Tensor& grad_output, const Tensor& input,
                                       const Tensor& target, const std::optional<Tensor>& weight,
                                       double gamma, double alpha) {
  Tensor grad_input = torch::stable::empty_like(input);
  MMCV_DISPATCH_FLOATING("sigmoid_focal_loss_backward", input.scalar_type(), [&] {
    using acc_t = typename Accumulate<scalar_t>::type;
    const scalar_t* grad = data<scalar_t>(grad_output);  // (N, C)
    with_focal<acc_t>(gamma, alpha, [&](auto focal) {
      for_each_logit<scalar_t>(input, target, weight, grad_input,
                               [focal, grad](int64_t at, acc_t x, bool positive) {
                                 return focal.gradient(x, positive) * static_cast<acc_t>(grad[at]);
                               });
    });
  });
  return grad_input;
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mmcv, CPU, m) {
  m.impl("sigmoid_focal_loss", TORCH_BOX(&sigmoid_focal_loss_cpu));
  m.impl("sigmoid_focal_loss_backward", TORCH_BOX(&sigmoid_focal_loss_backward_cpu));
}

}  // namespace mmcv
