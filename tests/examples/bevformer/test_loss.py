"""Losses and matching at their edges."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from autodrive.geometry.boxes import lidar_to_network_boxes
from examples.bevformer.matching import match
from tests.examples.bevformer.small_model import batch, make_sample, small_model

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("boxes", [(0, 0), (0, 5), (5, 0)])
def test_samples_without_ground_truth(boxes):
    """K47: classification against background, box loss 0 but in the graph."""
    model = small_model().train()
    losses = model(*batch(*(make_sample(k, boxes=n) for k, n in enumerate(boxes))), mode="loss")
    assert len(losses) == 4
    assert all(value.isfinite() and value.requires_grad for value in losses.values())
    if sum(boxes) == 0:
        assert losses["loss_bbox"] == 0
    sum(losses.values()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None or not parameter.requires_grad, name


def test_more_ground_truth_than_queries():
    model = small_model(num_query=4).train()
    losses = model(*batch(make_sample(0, boxes=9)), mode="loss")
    assert all(value.isfinite() for value in losses.values())


def inputs_for_matching(queries=6, boxes=2):
    torch.manual_seed(0)
    labels = [torch.randint(0, 10, (boxes,))]
    _, sample = make_sample(0, boxes=boxes)
    targets = [lidar_to_network_boxes(sample.gt_instances_3d.bboxes_3d.tensor)]
    return torch.randn(1, 1, queries, 10), torch.randn(1, 1, queries, 10), labels, targets


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_cost_names_sample_and_term(value):
    """K50"""
    logits, boxes, labels, targets = inputs_for_matching()
    broken = logits.clone()
    broken[0, 0, 3] = float("nan")
    with pytest.raises(FloatingPointError, match="class cost of sample tok17 is not finite"):
        match(broken, boxes, labels, targets, ["tok17"])
    broken = boxes.clone()
    broken[0, 0, 3, 2] = value
    with pytest.raises(FloatingPointError, match=r"box cost of sample tok17 .*a prediction"):
        match(logits, broken, labels, targets, ["tok17"])
    targets[0][0, 2] = value
    with pytest.raises(FloatingPointError, match=r"box cost of sample tok17 .*a ground truth"):
        match(logits, boxes, labels, targets, ["tok17"])


def test_matching_of_half_precision_and_empty_inputs():
    """K50: costs are float32; nothing to match gives an empty matching."""
    logits, boxes, labels, targets = inputs_for_matching()
    expected = match(logits.half().float(), boxes.half().float(), labels, targets, ["t"])
    assert torch.equal(match(logits.half(), boxes.half(), labels, targets, ["t"]), expected)
    none = match(logits, boxes, [labels[0][:0]], [targets[0][:0]], ["t"])
    assert (none == -1).all()
    empty = match(logits[:, :, :0], boxes[:, :, :0], labels, targets, ["t"])
    assert empty.shape == (1, 1, 0)


def test_box_with_unknown_velocity_is_left_out_of_the_box_loss():
    model = small_model().eval()
    images, sample = make_sample(0, boxes=3)
    head = model.pts_bbox_head
    detections = model(*batch((images, sample)), mode="tensor")
    truth = sample.gt_instances_3d
    boxes = truth.bboxes_3d.tensor.clone()
    boxes[1, 7:] = float("nan")
    losses = head.loss(detections, [truth.labels_3d], [boxes], ["t"])
    full = head.loss(detections, [truth.labels_3d], [truth.bboxes_3d.tensor], ["t"])
    assert losses["loss_cls"] == full["loss_cls"]
    assert 0 < losses["loss_bbox"] < full["loss_bbox"]


@pytest.mark.slow
def test_two_processes_give_the_gradients_of_one(tmp_path):
    """K51: one rank without boxes, then both; no hang, every parameter has a gradient, equal to one
    process.

    Without any boxes nothing is compared: losses are then divided by 1 on every rank, and averaged.
    """
    worker = Path(__file__).with_name("ddp_worker.py")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for count in (1, 2):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(count), str(worker), str(tmp_path / f"{count}.pt")]
        subprocess.run(command, check=True, env=environment, timeout=300)
    one, two = (torch.load(tmp_path / f"{count}.pt") for count in (1, 2))
    assert len(one) == len(two) == 3
    for step_one, step_two in zip(one[:2], two[:2]):
        assert step_one.keys() == step_two.keys()
        for name, gradient in step_one.items():
            torch.testing.assert_close(step_two[name], gradient, atol=1e-5, rtol=1e-3)
