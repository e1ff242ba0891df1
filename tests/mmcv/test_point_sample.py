import pytest
import torch
import torch.nn.functional as F
from mmcv.ops import SimpleRoIAlign, point_sample, rel_roi_point_to_rel_img_point
from mmcv.ops.point_sample import (
    abs_img_point_to_rel_img_point,
    bilinear_grid_sample,
    denormalize,
    generate_grid,
    get_shape_from_feature_map,
    normalize,
    rel_roi_point_to_abs_img_point,
)

from tests.mmcv.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_samples_at_the_middle_of_a_pixel_give_the_pixel(device):
    image = torch.arange(12.0, device=device).view(1, 1, 3, 4)
    grid = generate_grid(1, (3, 4), device)
    assert torch.allclose(point_sample(image, grid).flatten(), image.flatten(), atol=1e-5)
    assert torch.allclose(point_sample(image, grid.view(1, 3, 4, 2)), image, atol=1e-5)


def test_points_of_a_box_reach_the_image():
    rois = torch.tensor([[0.0, 10, 20, 30, 60]], requires_grad=True)
    points = torch.tensor([[[0.0, 0.0], [0.5, 0.25]]])
    found = rel_roi_point_to_abs_img_point(rois, points)
    assert torch.equal(found, torch.tensor([[[10.0, 20.0], [20.0, 30.0]]]))
    assert not found.requires_grad
    assert torch.equal(rel_roi_point_to_abs_img_point(rois[:, 1:], points), found)
    relative = torch.tensor([[[0.05, 0.2], [0.1, 0.3]]])
    for image in ((100, 200), torch.zeros(1, 3, 100, 200)):
        assert torch.allclose(rel_roi_point_to_rel_img_point(rois, points, image), relative)
        assert torch.allclose(abs_img_point_to_rel_img_point(found, image, 0.5), relative / 2)


@pytest.mark.parametrize("align_corners", [True, False])
def test_bilinear_grid_sample_equals_grid_sample(align_corners):
    torch.manual_seed(0)
    image = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
    grid = (3 * torch.rand(2, 6, 7, 2, dtype=torch.float64) - 1.5).requires_grad_()
    outputs = [
        bilinear_grid_sample(image, grid, align_corners),
        F.grid_sample(image, grid, align_corners=align_corners),
    ]
    assert torch.allclose(*outputs)
    gradients = [torch.autograd.grad(out.square().sum(), (image, grid)) for out in outputs]
    for found, expected in zip(*gradients):
        assert torch.allclose(found, expected)


def test_small_functions():
    x = torch.tensor([0.0, 0.5, 1.0])
    assert torch.equal(normalize(denormalize(x)), x)
    assert get_shape_from_feature_map(torch.zeros(1, 2, 3, 4)).tolist() == [[[4, 3]]]


@pytest.mark.parametrize("device", DEVICES)
def test_simple_roi_align_samples_bin_centres(device):
    image = torch.arange(64.0, device=device).view(1, 1, 8, 8).repeat(2, 1, 1, 1)
    image[1] += 100
    rois = torch.tensor([[0, 2, 2, 6, 6], [1, 0, 0, 4, 4.0]], device=device)
    pooled = SimpleRoIAlign((2, 2), 1.0)(image, rois)
    # Bin centres at 3 and 5: between pixels 2, 3 and 4, 5 of rows of 8.
    expected = torch.tensor([[22.5, 24.5], [38.5, 40.5]], device=device)
    assert torch.allclose(pooled[0, 0], expected)
    assert torch.allclose(pooled[1, 0], expected - 18 + 100)
    assert SimpleRoIAlign(2, 1.0)(image, rois[:0]).shape == (0, 1, 2, 2)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="points must be"):
        point_sample(torch.zeros(1, 1, 2, 2), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="rois must be"):
        rel_roi_point_to_abs_img_point(torch.zeros(1, 3), torch.zeros(1, 2, 2))
