import pytest
import torch
from mmcv.ops import CrissCrossAttention

from tests.mmcv.devices import DEVICES


def reference(module, x):
    """Pixel by pixel: its row with itself, its column without."""
    query, key, value = module.query_conv(x), module.key_conv(x), module.value_conv(x)
    out = torch.zeros_like(value)
    B, _, H, W = x.shape
    for b in range(B):
        for h in range(H):
            for w in range(W):
                seen = [(i, w) for i in range(H) if i != h] + [(h, j) for j in range(W)]
                energies = torch.stack([query[b, :, h, w] @ key[b, :, i, j] for i, j in seen])
                values = torch.stack([value[b, :, i, j] for i, j in seen])
                out[b, :, h, w] = energies.softmax(0) @ values
    return module.gamma.scale * out + x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [(3, 4), (1, 5), (4, 1)])
def test_equals_the_definition(device, size):
    torch.manual_seed(0)
    module = CrissCrossAttention(16).to(device, torch.float64)
    module.gamma.scale.data.fill_(0.7)
    x = torch.randn(2, 16, *size, dtype=torch.float64, device=device, requires_grad=True)
    found, expected = module(x), reference(module, x)
    assert torch.allclose(found, expected)
    gradients = [torch.autograd.grad(out.square().sum(), x)[0] for out in (found, expected)]
    assert torch.allclose(*gradients)


def test_starts_as_the_identity_with_the_known_keys():
    module = CrissCrossAttention(16)
    x = torch.randn(1, 16, 3, 3)
    assert torch.equal(module(x), x)
    parts = ("query_conv", "key_conv", "value_conv")
    assert set(module.state_dict()) == {"gamma.scale"} | {
        f"{part}.{kind}" for part in parts for kind in ("weight", "bias")
    }


def test_compiles_without_a_graph_break():
    module = CrissCrossAttention(8)
    x = torch.randn(1, 8, 3, 4)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x), module(x))
