"""Our modules with the official implementation's weights and inputs give its outputs."""

import numpy as np
import pytest
import torch

from autodrive.data.can_bus import HEADING_DEGREES
from autodrive.geometry.projection import pillar_points, project_points
from examples.bevformer.deformable_attention import level_tensors
from examples.bevformer.ego_motion import ego_shift, rotate_bev
from examples.bevformer.grid_mask import grid_keep_mask
from examples.bevformer.head import Detections
from examples.bevformer.matching import match
from examples.bevformer.spatial_cross_attention import (
    CameraTokens,
    SpatialCrossAttention,
    VisibleCells,
)
from examples.bevformer.temporal_self_attention import TemporalSelfAttention
from tests.examples.bevformer.golden import (
    HEAD,
    Case,
    assert_close,
    assert_same_boxes,
    cases,
    lidar_boxes,
    make_head,
    set_weights,
)

PC_RANGE = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0)
LAYER = HEAD + "transformer.encoder.layers.{}.attentions.{}."


def lidar2img(case: Case) -> torch.Tensor:
    return torch.from_numpy(case["in_lidar2img"]).float().unsqueeze(0)


def test_temporal_self_attention():
    case = Case("tsa_12x10")
    bev_h, bev_w = case.config["bev"]
    module = TemporalSelfAttention(256)
    set_weights(module, LAYER.format(case.config["layer"], 0))
    module.eval()
    x, pos, prev, start = (case.rule(name) for name in ("x", "e", "P", "q0"))
    rows, cols = torch.meshgrid(torch.arange(bev_h), torch.arange(bev_w), indexing="ij")
    centers = torch.stack([(cols + 0.5) / bev_w, (rows + 0.5) / bev_h], -1).view(1, -1, 1, 2)
    shift = torch.from_numpy(case["in_shift"]).float().view(1, 1, 1, 2)
    none, both = centers.expand(-1, -1, 2, -1), (centers + shift).expand(-1, -1, 2, -1)
    first = torch.cat([centers + shift, centers], dim=2)
    for name, prev_bev, references in (
        ("with_prev_both_shifted", prev, both),
        ("with_prev_first_shifted", prev, first),
        ("without_prev", None, none),
    ):
        out = module(x, pos, prev_bev, start, None, references, (bev_h, bev_w))
        assert_close(out, case[f"out_{name}"], atol=5e-5)


@pytest.mark.parametrize("name", cases("sca_"))
def test_spatial_cross_attention(name):
    case = Case(name)
    shapes = tuple(tuple(shape) for shape in case.config["feat_shapes"])
    module = SpatialCrossAttention(256, num_levels=len(shapes))
    set_weights(module, LAYER.format(case.config["layer"], 1))
    module.eval()
    pillars = pillar_points(PC_RANGE, *case.config["bev"], 4)
    uv, visible = project_points(pillars, lidar2img(case), case.config["img_shape"])
    points, mask = case["out_points"][:, 0], case["out_mask"][:, 0].astype(bool)
    np.testing.assert_array_equal(visible[0].numpy(), mask)
    assert_close(uv[0][visible[0]], points[mask], atol=1e-5)
    # For a far point one rounding of the depth moves u and v in proportion.
    comparable = ~mask & (np.abs(points) < 1e3).all(-1)
    assert_close(uv[0].numpy()[comparable], points[comparable], rtol=1e-3, atol=1e-5)
    cameras = CameraTokens(
        case.rule("tokens").permute(2, 0, 1, 3), *level_tensors(shapes, torch.device("cpu"))
    )
    out = module(case.rule("x"), cameras, VisibleCells.collect(uv, visible))
    assert_close(out, case["out_y"], atol=5e-5)


@pytest.mark.parametrize("name", cases("ego_"))
def test_ego_motion(name):
    case = Case(name)
    shape = tuple(case.config["bev"])
    can_bus = case["in_can_bus"]
    assert_close(ego_shift(can_bus, PC_RANGE, *shape), case["out_shift"], atol=1e-7)
    index = torch.arange(1, shape[0] * shape[1] + 1, dtype=torch.float32).view(1, -1, 1)
    for k, frame in enumerate(can_bus):
        turn = frame[[HEADING_DEGREES]]
        turned = rotate_bev(index, turn, case.config["rotate_center"], shape)
        differing = (turned.flatten().numpy() != case[f"out_source_{k}"].flatten()).sum()
        assert differing <= 1e-4 * index.numel()
    head = make_head({"bev": [4, 4]})
    embedding = head.transformer.embed_can_bus(can_bus)
    assert_close(embedding, case["out_can_bus_embedding"], atol=1e-5)


def test_grid_mask():
    case = Case("gridmask_3")
    for k, (h, w, period, row_offset, col_offset) in enumerate(case["in_draws"].tolist()):
        keep = grid_keep_mask(h, w, period, row_offset, col_offset)
        np.testing.assert_array_equal(keep.numpy(), case[f"out_keep_{k}"].astype(bool))


def encode_two_frames(head, case):
    """The BEV of a first frame, and of a second one whose features are flipped along the width."""
    arguments = (lidar2img(case), tuple(case.config["img_shape"]))
    features = case.features()
    first = head.encode(features, *arguments, case["in_can_bus_0"][None])
    flipped = [level.flip(-1) for level in features]
    return first, head.encode(flipped, *arguments, case["in_can_bus_1"][None], first)


@pytest.mark.parametrize("name", cases("encoder_"))
@torch.no_grad()
def test_encoder(name):
    case = Case(name)
    head = make_head(case.config)
    for k, bev in enumerate(encode_two_frames(head, case)):
        assert_close(bev, case[f"out_bev_{k}"], atol=5e-4)
    pillars = head.transformer.encoder.pillars
    uv, visible = project_points(pillars, lidar2img(case), tuple(case.config["img_shape"]))
    shape = case["out_mask_shape"]
    mask = np.unpackbits(case["out_mask"])[: np.prod(shape)].reshape(shape).astype(bool)
    np.testing.assert_array_equal(visible.transpose(0, 1).numpy(), mask)
    assert_close(uv.transpose(0, 1)[torch.from_numpy(mask)], case["out_points_visible"], atol=1e-5)


@pytest.mark.parametrize("name", cases("head_"))
@torch.no_grad()
def test_head(name):
    case = Case(name)
    head = make_head(case.config)
    outputs = []
    for k, bev in enumerate(encode_two_frames(head, case)):
        outputs.append(head.decode(bev))
        assert_close(outputs[k].logits, case[f"out_all_cls_scores_{k}"], atol=5e-4)
        assert_close(outputs[k].boxes, case[f"out_all_bbox_preds_{k}"], atol=1e-3)
        if k == 1:
            assert_close(bev[0, :40], case["out_bev_first40_1"], atol=5e-4)
    last = outputs[1]
    assert_close(last.states[-1], case["out_states_last"].transpose(1, 0, 2), atol=5e-4)
    assert_close(last.references[0], case["out_init_reference"], atol=5e-4)
    assert_close(last.references[1:], case["out_inter_references"][:-1], atol=5e-4)
    assert_same_boxes(head.predict(last)[0], case, "", atol=1e-3, scores=1e-4)

    labels = [torch.from_numpy(case["in_gt_labels"])]
    boxes = [lidar_boxes(case["in_gt_boxes"])]
    for key, value in head.loss(last, labels, boxes, ["token"]).items():
        assert_close(value, case[f"out_loss_{key}"].squeeze(), rtol=1e-4)
    check_matching(last, labels, boxes, case["out_matched_gt"][:, None])


def check_matching(detections, labels, boxes, expected):
    from autodrive.geometry.boxes import lidar_to_network_boxes

    targets = [lidar_to_network_boxes(b) for b in boxes]
    tokens = ["token"] * len(boxes)
    matched = match(detections.logits, detections.boxes, labels, targets, tokens)
    np.testing.assert_array_equal(matched.numpy(), expected)


@pytest.mark.parametrize("name", cases("loss_"))
def test_losses(name):
    case = Case(name)
    logits, box = case.rule("cls"), case.rule("box")
    box[..., 0:2] *= 20
    box[..., 2:4] *= 0.3
    box[..., 3] += 0.9
    box[..., 5] *= 0.2
    logits.requires_grad_()
    box.requires_grad_()
    layers, B, Q, _ = logits.shape
    head = make_head({**case.config, "bev": [4, 4], "decoder_layers": layers})
    detections = Detections(logits, box, torch.zeros(layers, B, Q, 1), torch.zeros(layers, B, Q, 3))
    labels = [torch.from_numpy(case[f"in_gt_labels_{b}"]) for b in range(B)]
    boxes = [lidar_boxes(case[f"in_gt_boxes_{b}"]) for b in range(B)]
    losses = head.loss(detections, labels, boxes, ["token"] * B)
    for key, value in losses.items():
        assert_close(value, case[f"out_loss_{key}"].squeeze(), rtol=1e-4)
    sum(losses.values()).backward()
    assert_close(logits.grad.sum(-1), case["out_grad_cls_sum"], atol=1e-5)
    assert_close(box.grad[-1], case["out_grad_box"], atol=1e-5)
    check_matching(detections, labels, boxes, case["out_matched_gt"])
    for b, prediction in enumerate(head.predict(detections)):
        assert_same_boxes(prediction, case, f"_{b}", atol=1e-3, scores=1e-4)
