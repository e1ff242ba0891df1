import pytest
import torch
from mmcv.ops import Conv2d, ConvTranspose2d, Linear, MaxPool2d


@pytest.mark.parametrize(
    "layer, arguments, x",
    [
        (Conv2d, (2, 3, 3), torch.randn(1, 2, 5, 5)),
        (ConvTranspose2d, (2, 3, 3), torch.randn(1, 2, 5, 5)),
        (Linear, (2, 3), torch.randn(1, 2)),
        (MaxPool2d, (2,), torch.randn(1, 2, 4, 4)),
    ],
)
def test_is_torchs_layer_with_a_warning(layer, arguments, x):
    with pytest.warns(DeprecationWarning, match="deprecated"):
        module = layer(*arguments)
    plain = getattr(torch.nn, layer.__name__.removesuffix("_deprecated"))(*arguments)
    plain.load_state_dict(module.state_dict())
    assert torch.equal(module(x), plain(x))
