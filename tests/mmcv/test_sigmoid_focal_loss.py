import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import SigmoidFocalLoss, sigmoid_focal_loss

from tests.mmcv.devices import DEVICES, DTYPES, assert_close


def make(device="cpu", dtype=torch.float32, N=50, C=7):
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(N, C, generator=generator) * 4).to(device, dtype)
    target = torch.randint(-1, C + 1, (N,), generator=generator).to(device)
    return logits, target


def reference(logits, target, gamma, alpha, weight=None):
    """In float64; the positive class of a row is its target, if that is a class."""
    x = logits.double()
    positive = target[:, None] == torch.arange(x.shape[1])
    p = x.sigmoid()
    loss = torch.where(
        positive,
        -alpha * (1 - p) ** gamma * F.logsigmoid(x),
        -(1 - alpha) * p**gamma * F.logsigmoid(-x),
    )
    if weight is not None:
        inside = (target >= 0) & (target < x.shape[1])
        loss = (
            loss * torch.where(inside, weight.double()[target.clamp(0, x.shape[1] - 1)], 1)[:, None]
        )
    return loss


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gamma, alpha", [(2.0, 0.25), (0.5, 0.6), (0.0, 0.5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients_equal_the_reference(device, dtype, gamma, alpha, weighted):
    """K24"""
    logits, target = make(device, dtype)
    weight = torch.rand(7, generator=torch.Generator().manual_seed(1)) if weighted else None
    on_device = weight.to(device, dtype) if weighted else None
    exact = logits.detach().double().cpu().requires_grad_()
    logits.requires_grad_()
    loss = sigmoid_focal_loss(logits, target, gamma, alpha, on_device, "none")
    rounded = on_device.cpu() if weighted else None
    expected = reference(exact, target.cpu(), gamma, alpha, rounded)
    assert loss.dtype == dtype
    assert_close(loss, expected.detach(), dtype)
    loss.backward(torch.ones_like(loss))
    expected.sum().backward()
    assert_close(logits.grad, exact.grad, dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_extreme_logits_in_half_precision(device):
    """K06"""
    logits = torch.tensor([[9.390625, -4.234375]] * 3, device=device, dtype=torch.float16)
    target = torch.tensor([0, 1, 2], device=device)
    expected = torch.tensor(
        [[1.4553e-13, 2.2006e-6], [7.04186, 1.03207], [7.04186, 2.2006e-6]], dtype=torch.float16
    )
    found = sigmoid_focal_loss(logits, target, reduction="none").cpu()
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-7)
    far = torch.tensor([[100.0, -100.0]], device=device, dtype=torch.float16)
    found = sigmoid_focal_loss(far, target[1:2], reduction="none")
    assert found.tolist() == [[75, 25]]
    for dtype in DTYPES:
        far = torch.tensor([[60000.0, -60000.0]] * 3, device=device, dtype=dtype).requires_grad_()
        loss = sigmoid_focal_loss(far, target, reduction="none")
        loss.backward(torch.ones_like(loss))
        assert loss.isfinite().all() and far.grad.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_reductions(device):
    logits, target = make(device)
    none = sigmoid_focal_loss(logits, target, reduction="none")
    assert_close(sigmoid_focal_loss(logits, target, reduction="sum"), none.double().sum().cpu())
    assert_close(sigmoid_focal_loss(logits, target), none.double().sum().cpu() / 50)
    module = SigmoidFocalLoss(2.0, 0.25)
    assert torch.equal(module(logits, target), sigmoid_focal_loss(logits, target))
    assert not module.state_dict()
    assert list(SigmoidFocalLoss(2.0, 0.25, torch.ones(7)).state_dict()) == ["weight"]


@pytest.mark.parametrize("device", DEVICES)
def test_gradcheck(device):
    logits, target = make(device, torch.float64, N=6, C=3)
    assert torch.autograd.gradcheck(
        lambda x: sigmoid_focal_loss(x, target, reduction="none"), logits.requires_grad_()
    )


@pytest.mark.parametrize("device", DEVICES)
def test_no_rows(device):
    """K22"""
    logits, target = make(device, N=0)
    logits.requires_grad_()
    assert sigmoid_focal_loss(logits, target, reduction="none").shape == (0, 7)
    loss = sigmoid_focal_loss(logits, target)
    loss.backward()
    assert loss.item() == 0 and logits.grad.shape == (0, 7)


@pytest.mark.parametrize("device", DEVICES)
def test_strided_inputs_equal_contiguous_ones(device):
    """K07"""
    logits, target = make(device)
    found = sigmoid_focal_loss(logits.t().contiguous().t()[::2], target[::2], reduction="none")
    expected = sigmoid_focal_loss(
        logits[::2].contiguous(), target[::2].contiguous(), reduction="none"
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_and_compile(device):
    """K26"""
    logits, target = make(device)
    logits.requires_grad_()
    torch.library.opcheck(
        torch.ops.mmcv.sigmoid_focal_loss.default, (logits, target, None, 2.0, 0.25)
    )
    compiled = torch.compile(sigmoid_focal_loss, fullgraph=True, backend="aot_eager")
    gradients = []
    for function in (compiled, sigmoid_focal_loss):
        gradients.append(torch.autograd.grad(function(logits, target), logits)[0])
    assert torch.equal(*gradients)


def test_errors_name_the_argument():
    logits, target = make()
    with pytest.raises(TypeError, match="target must be int64"):
        sigmoid_focal_loss(logits, target.int())
    with pytest.raises(ValueError, match=r"target must be \(50,\)"):
        sigmoid_focal_loss(logits, target[:3])
    with pytest.raises(ValueError, match="input must be"):
        sigmoid_focal_loss(logits[0], target)
    with pytest.raises(ValueError, match="reduction must be"):
        sigmoid_focal_loss(logits, target, reduction="max")
    with pytest.raises(ValueError, match=r"weight must be \(7,\)"):
        sigmoid_focal_loss(logits, target, weight=torch.ones(3))
