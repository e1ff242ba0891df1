import numpy as np
import pytest
import torch
from mmcv.ops import batched_nms, nms

from tests.mmcv.devices import DEVICES, DTYPES
from tests.mmcv.reference.nms import nms as reference


def make(count, device="cpu", dtype=torch.float32, seed=0):
    """Whole numbers, so that every dtype holds them and ratios are exact enough to compare."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.randint(0, 40, (count, 2), generator=generator)
    size = torch.randint(1, 30, (count, 2), generator=generator)
    boxes = torch.cat([corner, corner + size], 1).to(device, dtype)
    scores = torch.randint(0, 60, (count,), generator=generator).div(64).to(device, dtype)
    return boxes, scores


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200])
def test_keeps_what_the_reference_keeps(device, dtype, offset, count):
    """K24, and K05: equal scores, of which there are many here, keep the order of the input."""
    boxes, scores = make(count, device, dtype)
    dets, inds = nms(boxes, scores, 0.401, offset)
    expected = reference(boxes.cpu().double(), scores.cpu().double(), 0.401, offset)
    assert inds.dtype == torch.int64 and inds.tolist() == expected
    assert torch.equal(dets, torch.cat([boxes[inds], scores[inds, None]], 1))


@pytest.mark.parametrize("device", DEVICES)
def test_many_boxes(device):
    boxes, scores = make(3000, device)
    boxes = boxes + torch.arange(3000, device=device)[:, None].div(10, rounding_mode="floor") * 30
    found = nms(boxes, scores, 0.301)[1].tolist()
    cpu = nms(boxes.cpu(), scores.cpu(), 0.301)[1].tolist()
    assert found == cpu and 300 < len(found) < 3000


@pytest.mark.parametrize("device", DEVICES)
def test_threshold_is_strict(device):
    """K04"""
    boxes = torch.tensor(
        [[0, 0, 1, 1], [2, 2, 3, 3], [0.5, 0.5, 1.5, 1.5]], device=device, dtype=torch.float32
    )
    scores = torch.tensor([0.9, 0.8, 0.7], device=device)
    assert nms(boxes, scores, 0.0)[1].tolist() == [0, 1]
    touching = torch.tensor([[0, 0, 1, 1], [1, 0, 2, 1.0]], device=device)
    assert nms(touching, scores[:2], 0.0)[1].tolist() == [0, 1]


@pytest.mark.parametrize("device", DEVICES)
def test_equal_scores_keep_the_lower_index(device):
    """K05"""
    boxes = torch.tensor(
        [
            [0.3764, 0.0905, 0.6533, 0.4487],
            [0.3744, 0.0899, 0.6535, 0.4513],
            [0.3753, 0.0916, 0.6532, 0.4512],
        ],
        device=device,
    )
    scores = torch.ones(3, device=device)
    assert nms(boxes, scores, 0.2)[1].tolist() == [0]
    labels = torch.zeros(3, device=device)
    assert batched_nms(boxes, scores, labels, dict(iou_threshold=0.2))[1].tolist() == [0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("class_agnostic", [False, True])
@pytest.mark.parametrize("columns", [4, 5])
def test_no_boxes(device, class_agnostic, columns):
    """K21, K22"""
    boxes = torch.zeros(0, columns, device=device)
    scores = torch.zeros(0, device=device)
    for options in (None, dict(iou_threshold=0.5), dict(type="nms_rotated", iou_threshold=0.5)):
        dets, keep = batched_nms(boxes, scores, scores.long(), options, class_agnostic)
        assert dets.shape == (0, columns + 1) and dets.dtype == boxes.dtype
        assert keep.shape == (0,) and keep.dtype == torch.int64 and keep.device == boxes.device
    if columns == 4:
        dets, inds = nms(boxes, scores, 0.5)
        assert dets.shape == (0, 5) and inds.shape == (0,) and inds.dtype == torch.int64


@pytest.mark.parametrize("device", DEVICES)
def test_score_threshold_and_max_num(device):
    boxes, scores = make(50, device)
    _, inds = nms(boxes, scores, 0.5, score_threshold=0.5)
    high = (scores > 0.5).nonzero()[:, 0]
    assert inds.tolist() == high[nms(boxes[high], scores[high], 0.5)[1]].tolist()
    assert nms(boxes, scores, 0.5, max_num=3)[1].tolist() == nms(boxes, scores, 0.5)[1][:3].tolist()


def test_numpy_in_gives_numpy_out():
    boxes, scores = make(20)
    dets, inds = nms(boxes.numpy(), scores.numpy(), 0.5)
    assert isinstance(dets, np.ndarray) and isinstance(inds, np.ndarray)
    assert inds.tolist() == nms(boxes, scores, 0.5)[1].tolist()


def test_degenerate_boxes_do_not_suppress_each_other():
    boxes = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 1]])
    assert nms(boxes, torch.tensor([0.5, 0.6]), 0.5)[1].tolist() == [1, 0]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_reach_boxes_and_scores(device):
    boxes, scores = (x.requires_grad_() for x in make(30, device))
    dets, inds = nms(boxes, scores, 0.5)
    dets.sum().backward()
    kept = torch.zeros(30, device=device)
    kept[inds] = 1
    assert torch.equal(scores.grad, kept)
    assert torch.equal(boxes.grad, kept[:, None].expand(-1, 4))


@pytest.mark.parametrize("device", DEVICES)
def test_strided_inputs_equal_contiguous_ones(device):
    """K07"""
    boxes, scores = make(60, device)
    strided = boxes.t().contiguous().t()[::2], scores[::2]
    plain = boxes[::2].contiguous(), scores[::2].contiguous()
    assert torch.equal(nms(*strided, 0.5)[1], nms(*plain, 0.5)[1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("split", [10000, 1])
def test_batched_equals_each_group_alone(device, split):
    boxes, scores = make(120, device)
    scores = scores + torch.arange(120, device=device) / 10000  # all different
    labels = torch.arange(120, device=device) % 4
    dets, keep = batched_nms(boxes, scores, labels, dict(iou_threshold=0.5, split_thr=split))
    expected = []
    for label in range(4):
        members = (labels == label).nonzero()[:, 0]
        expected += members[nms(boxes[members], scores[members], 0.5)[1]].tolist()
    assert sorted(keep.tolist()) == sorted(expected)
    assert torch.equal(dets, torch.cat([boxes[keep], scores[keep, None]], 1))
    assert torch.equal(dets[:, 4], dets[:, 4].sort(descending=True)[0])
    limited = dict(iou_threshold=0.5, split_thr=split, max_num=5)
    assert batched_nms(boxes, scores, labels, limited)[1].tolist() == keep[:5].tolist()


def test_batched_without_options_sorts():
    boxes, scores = make(10)
    dets, keep = batched_nms(boxes, scores, torch.zeros(10), None)
    assert keep.tolist() == scores.argsort(descending=True, stable=True).tolist()
    assert torch.equal(dets[:, :4], boxes[keep])


def test_class_agnostic_ignores_groups():
    boxes, scores = make(60)
    keep = batched_nms(boxes, scores, torch.arange(60), dict(iou_threshold=0.5), True)[1]
    assert keep.tolist() == nms(boxes, scores, 0.5)[1].tolist()
    options = dict(iou_threshold=0.5, class_agnostic=True)
    assert batched_nms(boxes, scores, torch.arange(60), options)[1].tolist() == keep.tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_and_compile(device):
    """K26: the op itself; how many boxes are kept is data, at which a graph has to end."""
    boxes, _ = make(70, device)
    torch.library.opcheck(torch.ops.mmcv.nms.default, (boxes, 0.5, 0))
    compiled = torch.compile(torch.ops.mmcv.nms, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(boxes, 0.5, 0), torch.ops.mmcv.nms(boxes, 0.5, 0))


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_the_same_every_time(device):
    """K25"""
    boxes, scores = make(500, device)
    first = nms(boxes, scores, 0.5)[1]
    assert all(torch.equal(nms(boxes, scores, 0.5)[1], first) for _ in range(10))


def test_errors_name_the_argument():
    boxes, scores = make(4)
    with pytest.raises(ValueError, match="boxes must be"):
        nms(boxes[:, :3], scores, 0.5)
    with pytest.raises(ValueError, match=r"scores must be \(4,\)"):
        nms(boxes, scores[:3], 0.5)
    with pytest.raises(ValueError, match="offset must be 0 or 1"):
        nms(boxes, scores, 0.5, offset=2)
    with pytest.raises(ValueError, match="nms_cfg"):
        batched_nms(boxes, scores, scores, dict(type="eval"))
