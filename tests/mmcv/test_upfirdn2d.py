"""The ops of StyleGAN: upfirdn2d, bias_act and what is made of them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import (
    FusedBiasLeakyReLU,
    bias_act,
    conv2d,
    conv_transpose2d,
    filter2d,
    filtered_lrelu,
    fused_bias_leakyrelu,
    upfirdn2d,
    upsample2d,
)
from mmcv.ops.bias_act import EasyDict
from mmcv.ops.upfirdn2d import downsample2d

from tests.mmcv.devices import DEVICES


def reference(x, kernel, up, down, padding, flip, gain):
    """One output pixel after the other, in float64."""
    x, kernel = x.double().cpu().numpy(), kernel.double().cpu().numpy()
    if kernel.ndim == 1:
        kernel = np.outer(kernel, kernel)
    if not flip:
        kernel = kernel[::-1, ::-1]
    N, C, H, W = x.shape
    spaced = np.zeros((N, C, H * up[1], W * up[0]))
    spaced[:, :, :: up[1], :: up[0]] = x
    left, right, top, bottom = padding
    crop = [max(0, -p) for p in padding]
    pad = [max(0, p) for p in padding]
    spaced = spaced[:, :, crop[2] : spaced.shape[2] - crop[3], crop[0] : spaced.shape[3] - crop[1]]
    spaced = np.pad(spaced, ((0, 0), (0, 0), (pad[2], pad[3]), (pad[0], pad[1])))
    fh, fw = kernel.shape
    rows = (H * up[1] + top + bottom - fh) // down[1] + 1
    columns = (W * up[0] + left + right - fw) // down[0] + 1
    out = np.zeros((N, C, rows, columns))
    for i, j in np.ndindex(rows, columns):
        window = spaced[:, :, i * down[1] : i * down[1] + fh, j * down[0] : j * down[0] + fw]
        out[:, :, i, j] = gain * (window * kernel).sum((2, 3))
    return torch.from_numpy(out)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    "shape, up, down, padding, gain",
    [
        ((3, 4), (1, 1), (1, 1), (0, 0, 0, 0), 1),
        ((3, 2), (2, 3), (2, 1), (1, 2, 3, 1), 4),
        ((3,), (1, 2), (3, 2), (2, -1, -1, 2), 0.5),
        ((2, 2), (1, 1), (1, 1), (1, 0, 2, 0), -2),
    ],
)
def test_upfirdn2d_equals_the_definition(device, flip, shape, up, down, padding, gain):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 6, dtype=torch.float64, device=device)
    kernel = torch.randn(*shape, device=device)
    found = upfirdn2d(x, kernel, up, down, padding, flip, gain)
    assert torch.allclose(found.cpu(), reference(x, kernel, up, down, padding, flip, gain))


def test_sizes_of_the_relatives():
    x, kernel = torch.randn(1, 2, 6, 8), torch.ones(4, 4) / 16
    assert filter2d(x, kernel).shape == x.shape
    assert upsample2d(x, kernel).shape == (1, 2, 12, 16)
    assert downsample2d(x, kernel).shape == (1, 2, 3, 4)
    # Away from the border a constant stays what it is.
    constant = torch.ones(1, 1, 8, 8)
    assert torch.allclose(upsample2d(constant, kernel)[..., 4:-4, 4:-4], torch.ones(1, 1, 8, 8))


def test_upfirdn2d_differentiates_twice():
    x = torch.randn(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    kernel = torch.randn(3, 3, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda t: upfirdn2d(t, kernel, 2, 2, 1), x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "act, function, gain",
    [
        ("linear", lambda x: x, 1),
        ("relu", F.relu, 2**0.5),
        ("lrelu", lambda x: F.leaky_relu(x, 0.2), 2**0.5),
        ("tanh", torch.tanh, 1),
        ("sigmoid", torch.sigmoid, 1),
        ("elu", F.elu, 1),
        ("selu", F.selu, 1),
        ("softplus", F.softplus, 1),
        ("swish", lambda x: x * x.sigmoid(), 2**0.5),
    ],
)
def test_bias_act(device, act, function, gain):
    x, bias = torch.randn(2, 3, 4, device=device), torch.randn(3, device=device)
    expected = function(x + bias.view(1, 3, 1))
    assert torch.allclose(bias_act(x, bias, act=act), expected * gain)
    assert torch.allclose(
        bias_act(x, bias, act=act, gain=3, clamp=0.5), (expected * 3).clamp(-0.5, 0.5)
    )


def test_bias_act_errors():
    with pytest.raises(ValueError, match="act must be"):
        bias_act(torch.zeros(1, 2), act="step")
    with pytest.raises(ValueError, match="bias must be"):
        bias_act(torch.zeros(1, 2), torch.zeros(3))


def test_filtered_lrelu_is_its_steps():
    x, kernel = torch.randn(1, 3, 4, 4), torch.rand(3)
    bias = torch.randn(3)
    raised = upfirdn2d(x + bias.view(1, 3, 1, 1), kernel, 2, padding=1, gain=4)
    expected = upfirdn2d((F.leaky_relu(raised, 0.2) * 2**0.5).clamp(-1, 1), kernel, down=2)
    found = filtered_lrelu(x, kernel, kernel, bias, up=2, down=2, padding=1, clamp=1)
    assert torch.allclose(found, expected, atol=1e-6)


def test_fused_bias_leakyrelu():
    x, bias = torch.randn(2, 3, 4), torch.randn(3)
    expected = F.leaky_relu(x + bias.view(1, 3, 1), 0.2) * 2**0.5
    assert torch.allclose(fused_bias_leakyrelu(x, bias), expected)
    module = FusedBiasLeakyReLU(3)
    assert torch.allclose(module(x), F.leaky_relu(x, 0.2) * 2**0.5)
    assert list(module.state_dict()) == ["bias"]
    with pytest.raises(ValueError, match="bias"):
        fused_bias_leakyrelu(x, bias[:2])


def test_the_rest():
    assert conv2d is F.conv2d and conv_transpose2d is F.conv_transpose2d
    settings = EasyDict(a=1)
    settings.b = 2
    assert settings.a == 1 and settings["b"] == 2
    with pytest.raises(AttributeError):
        settings.c  # noqa: B018
    del settings.a
    assert "a" not in settings
