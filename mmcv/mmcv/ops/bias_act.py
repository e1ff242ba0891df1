"""Bias, activation, gain and clamping in one step (Karras et al. 2021, "StyleGAN3", appendix C)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import check_dtype


class EasyDict(dict):
    """A dict whose items are attributes too."""

    def __getattr__(self, name: str):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]


# name: (function of x and alpha, alpha if not given, gain if not given)
_ACTIVATIONS = {
    "linear": (lambda x, alpha: x, 0.0, 1.0),
    "relu": (lambda x, alpha: F.relu(x), 0.0, 2**0.5),
    "lrelu": (lambda x, alpha: F.leaky_relu(x, alpha), 0.2, 2**0.5),
    "tanh": (lambda x, alpha: torch.tanh(x), 0.0, 1.0),
    "sigmoid": (lambda x, alpha: torch.sigmoid(x), 0.0, 1.0),
    "elu": (lambda x, alpha: F.elu(x), 0.0, 1.0),
    "selu": (lambda x, alpha: F.selu(x), 0.0, 1.0),
    "softplus": (lambda x, alpha: F.softplus(x), 0.0, 1.0),
    "swish": (lambda x, alpha: F.silu(x), 0.0, 2**0.5),
}


def bias_act(
    input: Tensor,
    bias: Tensor | None = None,
    dim: int = 1,
    act: str = "linear",
    alpha: float | None = None,
    gain: float | None = None,
    clamp: float | None = None,
    use_custom_op: bool = True,
) -> Tensor:
    """clamp(act(input + bias) * gain).

    Args:
        input: any shape, floating.
        bias: (size of dimension `dim`,), or None.
        act: linear, relu, lrelu, tanh, sigmoid, elu, selu, softplus or swish.
        alpha: slope of lrelu (0.2).
        gain: sqrt(2) for relu, lrelu and swish, otherwise 1.
        clamp: the result stays within -clamp...clamp; None for no bounds.
        use_custom_op: accepted.

    Raises:
        ValueError: an activation or a shape that is not as above.
    """
    name = "bias_act"
    check_dtype(name, "input", input)
    if act not in _ACTIVATIONS:
        raise ValueError(f"{name}: act must be one of {', '.join(_ACTIVATIONS)}, got {act}")
    if clamp is not None and clamp < 0:
        raise ValueError(f"{name}: clamp must be None or at least 0, got {clamp}")
    function, default_alpha, default_gain = _ACTIVATIONS[act]
    x = input
    if bias is not None:
        if bias.dim() != 1 or len(bias) != input.shape[dim]:
            raise ValueError(f"{name}: bias must be ({input.shape[dim]},), got {tuple(bias.shape)}")
        shape = [1] * input.dim()
        shape[dim] = -1
        x = x + bias.to(x.dtype).view(shape)
    x = function(x, default_alpha if alpha is None else alpha)
    gain = default_gain if gain is None else gain
    if gain != 1:
        x = x * gain
    return x if clamp is None else x.clamp(-clamp, clamp)
