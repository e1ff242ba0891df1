import math

import pytest
import torch
from mmcv.ops import box_iou_rotated

from tests.mmcv.devices import DEVICES, DTYPES, assert_close

geometry = pytest.importorskip("shapely.geometry")
affinity = pytest.importorskip("shapely.affinity")


def make(count, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centre = torch.rand(count, 2, generator=generator) * 10
    size = torch.rand(count, 2, generator=generator) * 6 + 0.5
    angle = torch.rand(count, 1, generator=generator) * 20 - 10
    return torch.cat([centre, size, angle], 1).to(dtype)


def polygon(box, clockwise=True):
    cx, cy, w, h, angle = box.tolist()
    outline = geometry.box(-w / 2, -h / 2, w / 2, h / 2)
    outline = affinity.rotate(outline, angle if clockwise else -angle, (0, 0), use_radians=True)
    return affinity.translate(outline, cx, cy)


def reference(first, second, mode="iou", clockwise=True):
    rows = []
    for a in first.double().cpu():
        row = []
        for b in second.double().cpu():
            p, q = polygon(a, clockwise), polygon(b, clockwise)
            inter = p.intersection(q).area
            row.append(inter / (p.area if mode == "iof" else p.area + q.area - inter))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["iou", "iof"])
@pytest.mark.parametrize("clockwise", [True, False])
def test_equals_polygons_of_shapely(device, dtype, mode, clockwise):
    """K24"""
    first, second = make(12, dtype).to(device), make(15, dtype, seed=1).to(device)
    found = box_iou_rotated(first, second, mode, clockwise=clockwise)
    expected = reference(first, second, mode, clockwise)
    assert found.dtype == dtype
    assert_close(found, expected, dtype)
    aligned = box_iou_rotated(first, second[:12], mode, aligned=True, clockwise=clockwise)
    assert_close(aligned, expected.diagonal(), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("aligned", [True, False])
def test_a_box_with_itself_and_slightly_larger_ones(device, aligned):
    """K01"""
    box = torch.tensor([[0, 0, 180.6422271729, 136.3633728027, 0.9559648633]], device=device)
    for more, expected in {0: 1.0, 0.5: 0.997240, 1: 0.994495, 2: 0.989050}.items():
        larger = box + torch.tensor([[0, 0, more, 0, 0]], device=device)
        found = box_iou_rotated(box, larger, aligned=aligned).item()
        assert found == pytest.approx(expected, abs=1e-4)
        assert box_iou_rotated(larger, box).item() == pytest.approx(found, abs=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_boxes_moved_by_single_bits(device):
    """K01"""
    boxes = make(200).to(device) * torch.tensor([10, 10, 10, 10, 1], device=device)
    moved = boxes * (
        1 + torch.finfo(torch.float32).eps * torch.randint(-3, 4, boxes.shape, device=device)
    )
    for other in (boxes, moved):
        found = box_iou_rotated(boxes, other, aligned=True)
        assert (found - 1).abs().max() < 1e-4
    every = box_iou_rotated(boxes, moved)
    assert every.min() >= 0 and every.max() <= 1 + 1e-4
    assert (every - box_iou_rotated(moved, boxes).t()).abs().max() < 1e-4


@pytest.mark.parametrize("device", DEVICES)
def test_large_coordinates_that_hardly_differ(device):
    """K02"""
    a = [2563.7446289, 1436.7901611, 2174.7033691, 214.0950012, 2.0091941875]
    b = [2563.7446289, 1436.7902832, 2174.7028809, 214.0949554, 2.0091943207]
    found = box_iou_rotated(*torch.tensor([[a], [b]], device=device)).item()
    assert found == pytest.approx(0.999999, abs=1e-4)


def test_known_areas():
    square = torch.tensor([[0, 0, 2, 2, 0.0]])
    inside = torch.tensor([[0, 0, 1, 1, 0.3]])
    apart = torch.tensor([[5, 0, 1, 1, 0.3]])
    turned = torch.tensor([[0, 0, 2, 2, math.pi / 4]])
    found = box_iou_rotated(square, torch.cat([inside, apart, turned]))[0].tolist()
    octagon = 8 * (math.sqrt(2) - 1)
    assert found == pytest.approx([0.25, 0, octagon / (8 - octagon)], abs=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_boxes_without_area_and_no_boxes(device):
    """K22"""
    boxes, flat = make(3).to(device), torch.tensor([[1.0, 1, 0, 5, 0]], device=device)
    assert not box_iou_rotated(boxes, flat).any() and not box_iou_rotated(flat, flat).any()
    assert box_iou_rotated(boxes[:0], boxes).shape == (0, 3)
    assert box_iou_rotated(boxes, boxes[:0]).shape == (3, 0)
    assert box_iou_rotated(boxes[:0], boxes[:0], aligned=True).shape == (0,)


def test_strided_inputs_equal_contiguous_ones():
    """K07"""
    boxes = make(10)
    strided = boxes.t().contiguous().t()[::2]
    assert torch.equal(box_iou_rotated(strided, boxes), box_iou_rotated(boxes[::2].clone(), boxes))


def test_opcheck_and_compile():
    """K26"""
    boxes = make(5)
    for aligned in (True, False):
        arguments = (boxes, boxes, False, aligned, True)
        torch.library.opcheck(torch.ops.mmcv.box_iou_rotated.default, arguments)
    compiled = torch.compile(box_iou_rotated, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(boxes, boxes), box_iou_rotated(boxes, boxes))


def test_errors_name_the_argument():
    boxes = make(3)
    with pytest.raises(ValueError, match="bboxes2 must be"):
        box_iou_rotated(boxes, boxes[:, :4])
    with pytest.raises(ValueError, match=r"bboxes2 must be \(3, 5\) with aligned"):
        box_iou_rotated(boxes, boxes[:2], aligned=True)
    with pytest.raises(ValueError, match="mode must be"):
        box_iou_rotated(boxes, boxes, mode="giou")
