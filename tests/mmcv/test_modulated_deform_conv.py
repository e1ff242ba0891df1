import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import ModulatedDeformConv2d, ModulatedDeformConv2dPack, modulated_deform_conv2d
from mmengine.registry import MODELS

from tests.mmcv.devices import DEVICES, DTYPES, assert_close
from tests.mmcv.reference.modulated_deform_conv import modulated_deform_conv2d as reference


def make(device="cpu", dtype=torch.float32, B=2, groups=2, deform_groups=2):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(device, dtype)

    taps = 6 * deform_groups
    return [
        draw(B, 4, 6, 7),
        draw(B, 2 * taps, 3, 7) * 1.5,
        draw(B, taps, 3, 7).sigmoid(),
        draw(6, 4 // groups, 3, 2),
        draw(6),
    ]


OPTIONS = dict(stride=(2, 1), padding=(1, 1), dilation=(1, 2), groups=2, deform_groups=2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_reference(device, dtype):
    """K24"""
    inputs = make(device, dtype)
    output = modulated_deform_conv2d(*inputs, **OPTIONS)
    assert output.dtype == dtype
    assert_close(output, reference(*(x.double().cpu() for x in inputs), **OPTIONS), dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_without_offsets_it_is_a_convolution(device):
    image, offset, mask, weight, bias = make(device)
    output = modulated_deform_conv2d(
        image, torch.zeros_like(offset), torch.ones_like(mask), weight, bias, **OPTIONS
    )
    exact = (x.double().cpu() for x in (image, weight, bias))
    assert_close(output, F.conv2d(*exact, (2, 1), (1, 1), (1, 2), 2))


@pytest.mark.parametrize("device", DEVICES)
def test_gradcheck(device):
    leaves = [x.requires_grad_() for x in make(device, torch.float64, B=1)]
    assert torch.autograd.gradcheck(
        lambda *x: modulated_deform_conv2d(*x, **OPTIONS), leaves, nondet_tol=1e-8, fast_mode=True
    )


@pytest.mark.parametrize("device", DEVICES)
def test_no_images(device):
    """K22"""
    leaves = [x.requires_grad_() for x in make(device, B=0)]
    output = modulated_deform_conv2d(*leaves, **OPTIONS)
    assert output.shape == (0, 6, 3, 7)


@pytest.mark.parametrize("device", DEVICES)
def test_strided_inputs_equal_contiguous_ones(device):
    """K07"""
    inputs = make(device)
    strided = [
        x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2) if x.dim() == 4 else x
        for x in inputs
    ]
    found = modulated_deform_conv2d(*strided, **OPTIONS)
    assert_close(found, modulated_deform_conv2d(*inputs, **OPTIONS).double().cpu())


@pytest.mark.parametrize("device", DEVICES)
def test_everything_is_cast_to_the_dtype_of_the_offset(device):
    """K23"""
    image, offset, mask, weight, bias = make(device)
    output = modulated_deform_conv2d(image, offset.half(), mask, weight, bias, **OPTIONS)
    assert output.dtype == torch.float16
    with torch.autocast(device, dtype=torch.bfloat16):
        output = modulated_deform_conv2d(image, offset, mask, weight, bias, **OPTIONS)
    assert output.dtype == torch.float32


def test_compiles_without_a_graph_break():
    """K26"""
    inputs = make()

    def run(*tensors):
        return modulated_deform_conv2d(*tensors, **OPTIONS)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs), run(*inputs))


def test_pack_starts_as_half_a_convolution():
    module = MODELS.build(
        dict(type="DCNv2", in_channels=4, out_channels=6, kernel_size=3, padding=1)
    )
    assert isinstance(module, ModulatedDeformConv2dPack)
    image = torch.randn(2, 4, 5, 5)
    expected = F.conv2d(image, module.weight, padding=1) / 2
    torch.testing.assert_close(module(image), expected, rtol=1e-4, atol=1e-5)
    assert list(module.state_dict()) == [
        "weight",
        "bias",
        "conv_offset.weight",
        "conv_offset.bias",
    ]
    assert "bias" not in ModulatedDeformConv2d(4, 6, 3, bias=False).state_dict()


def test_pack_takes_names_from_before_version_2():
    """Called as loaders do that hand every module the whole dict: there the old names are found."""
    module = ModulatedDeformConv2dPack(4, 6, 3)
    old = {f"conv2.{key}".replace(".conv_offset", "_offset"): torch.randn_like(value)
           for key, value in module.state_dict().items()}  # fmt: skip
    missing, unexpected = [], []
    wanted = old["conv2_offset.weight"]
    module._load_from_state_dict(old, "conv2.", {}, True, missing, unexpected, [])
    assert not missing and not unexpected
    assert torch.equal(old["conv2.conv_offset.weight"], wanted)


def test_errors_name_the_argument():
    image, offset, mask, weight, bias = make()
    with pytest.raises(ValueError, match="input must have 4 dimensions"):
        modulated_deform_conv2d(image[0], offset, mask, weight, bias, **OPTIONS)
    with pytest.raises(ValueError, match="offset must be"):
        modulated_deform_conv2d(image, offset[:, :4], mask, weight, bias, **OPTIONS)
    with pytest.raises(ValueError, match="mask must be"):
        modulated_deform_conv2d(image, offset, mask[:, :4], weight, bias, **OPTIONS)
    with pytest.raises(ValueError, match="input is too small"):
        modulated_deform_conv2d(image[:, :, :1, :1], offset, mask, weight, bias, groups=2)
