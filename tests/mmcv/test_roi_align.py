import pytest
import torch
from mmcv.ops import RoIAlign, roi_align

from tests.mmcv.devices import DEVICES, DTYPES, assert_close
from tests.mmcv.reference.roi_align import roi_align as reference


def make(device="cpu", dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, 3, 8, 9, generator=generator).to(device, dtype)
    rois = torch.tensor(
        [
            [0, 1, 2, 12, 14],
            [1, -3, -2, 9, 7],
            [1, 10, 3, 25, 30],
            [0, 4, 4, 4.5, 5],
            [0, 9, 9, 3, 2],
        ]
    )
    return image, rois.to(device, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("aligned", [True, False])
def test_equals_the_reference(device, dtype, mode, ratio, aligned):
    """K24; the last box has a negative size."""
    image, rois = make(device, dtype)
    chosen = rois[:4] if ratio else rois
    output = roi_align(image, chosen, (2, 3), 0.5, ratio, mode, aligned)
    arguments = (image.double().cpu(), chosen.double().cpu(), (2, 3), 0.5, ratio, mode, aligned)
    assert output.dtype == dtype
    assert_close(output, reference(*arguments), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_gradcheck(device, mode, ratio):
    image, rois = make(device, torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: roi_align(x, rois[:3], 2, 0.5, ratio, mode),
        image[:, :1].clone().requires_grad_(),
        nondet_tol=1e-9,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_no_boxes(device, mode):
    """K22"""
    image, rois = make(device)
    image.requires_grad_()
    output = roi_align(image, rois[:0], 2, pool_mode=mode)
    assert output.shape == (0, 3, 2, 2)
    output.sum().backward()
    assert not image.grad.any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_channels_last_equals_contiguous(device, mode):
    """K07"""
    image = torch.randn(2, 8, 8, 3, device=device).permute(0, 3, 1, 2).requires_grad_()
    plain = image.detach().contiguous().requires_grad_()
    rois = make(device)[1][:3]
    outputs = [roi_align(x, rois, 2, 0.5, 2, mode) for x in (image, plain)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.sum().backward()
    assert_close(image.grad, plain.grad.double().cpu())


@pytest.mark.parametrize("mode, ratio", [("avg", 0), ("avg", 2), ("max", 2)])
def test_compiles_without_a_graph_break(mode, ratio):
    """K26"""
    image, rois = make()
    module = RoIAlign(2, 0.5, ratio, mode)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(image, rois[:3]), module(image, rois[:3]))


def test_module_keeps_its_parameters():
    image, rois = make()
    module = RoIAlign((2, 3), 0.5, 2, "max", False)
    assert torch.equal(module(image, rois), roi_align(image, rois, (2, 3), 0.5, 2, "max", False))
    assert "output_size=(2, 3)" in repr(module) and not module.state_dict()


def test_errors_name_the_argument():
    image, rois = make()
    with pytest.raises(ValueError, match="rois must be"):
        roi_align(image, rois[:, :4], 2)
    with pytest.raises(ValueError, match="input must be"):
        roi_align(image[0], rois, 2)
    with pytest.raises(ValueError, match="pool_mode must be"):
        roi_align(image, rois, 2, pool_mode="sum")
