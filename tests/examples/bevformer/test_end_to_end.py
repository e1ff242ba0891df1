"""The whole detector against the official one: test stream, training losses, gradients."""

import json

import numpy as np
import pytest
import torch
from mmdet3d.structures import Det3DDataSample, LiDARInstance3DBoxes
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.structures import InstanceData

from tests.examples.bevformer.golden import (
    DATA,
    Case,
    assert_close,
    assert_same_boxes,
    cases,
    head_config,
    lidar_boxes,
    set_weights,
)

CONFIGS = "examples/bevformer/configs"


def build(name, **head):
    config = Config.fromfile(f"{CONFIGS}/{name}.py").model
    config.img_backbone.init_cfg = None
    config.pts_bbox_head.update(head)
    return MODELS.build(config)


@pytest.mark.parametrize("name", ["tiny", "tiny_synth", "small", "base"])
def test_keys_and_shapes_are_the_official_ones(name):
    official = name.removesuffix("_synth")
    expected = json.loads((DATA / f"bevformer_{official}.keys.json").read_text())
    with torch.device("meta"):
        found = build(name).state_dict()
    assert {key: list(value.shape) for key, value in found.items()} == expected


def sample(case, can_bus, scenes, exists):
    T = len(scenes)
    lidar2img = np.broadcast_to(case["in_lidar2img"], (T, 6, 4, 4))
    return Det3DDataSample(
        metainfo=dict(
            lidar2img=lidar2img,
            can_bus=can_bus,
            prev_bev_exists=np.array(exists),
            scene_token=list(scenes),
            token=[f"frame {t}" for t in range(T)],
            timestamp=[float(t) for t in range(T)],
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", cases("e2e_"))
def test_end_to_end(name):
    case = Case(name)
    head = head_config(case.config)
    model = build(case.config["config"], **head)
    set_weights(model, "")
    model.grid_mask = None
    model.eval()
    images = [case.rule(f"img_{k}")[0] for k in range(4)]

    with torch.no_grad():
        for level, features in enumerate(model.extract_features(images[0][None])):
            mean = case[f"out_feat_mean_{level}"]
            few = case[f"out_feat_sample_{level}"]
            scale = np.abs(few).max()
            assert_close(features[0].mean((-2, -1)), mean, atol=1e-4 * scale)
            assert_close(features[0][:, :: 256 // few.shape[1]], few, atol=1e-4 * scale)

    for k, scene in enumerate(case["in_scene"]):
        frame = sample(case, case["in_can_bus_absolute"][k : k + 1], [str(scene)], [k > 0])
        frame.set_metainfo(dict(timestamp=[float(k)]))
        inputs = {"img": [images[k][None]]}
        past = dict(model._memory)
        (result,) = model(inputs, [frame], mode="predict")
        bev = model._memory[str(scene)].bev
        assert_close(bev[:, :16], case[f"out_bev_first16_{k}"], atol=1e-3)
        assert_same_boxes(result.pred_instances_3d, case, f"_{k}", atol=5e-3, scores=1e-4)
        decoded = model.pts_bbox_head.decode(bev[None])
        assert_close(decoded.logits[-1], case[f"out_cls_{k}"], atol=1e-3)
        assert_close(decoded.boxes[-1], case[f"out_box_{k}"], atol=5e-3)
        assert list(model._memory) == [str(scene)] and (k == 0 or past)

    model.train()
    queue = case.config["queue"]
    train = sample(case, case["in_can_bus_train"], ["A"] * len(queue), [False, True, True])
    train.gt_instances_3d = InstanceData(
        bboxes_3d=LiDARInstance3DBoxes(lidar_boxes(case["in_gt_boxes"]), box_dim=9),
        labels_3d=torch.from_numpy(case["in_gt_labels"]),
    )
    losses = model({"img": [torch.stack([images[k] for k in queue])]}, [train], mode="loss")
    for key, value in losses.items():
        assert_close(value, case[f"out_loss_{key}"].squeeze(), rtol=1e-3)
    sum(losses.values()).backward()
    for group, norm in zip(case["names_grad"], case["out_grad_norms"]):
        gradients = [
            parameter.grad.flatten()
            for key, parameter in model.named_parameters()
            if key.startswith(str(group)) and parameter.grad is not None
        ]
        assert_close(torch.cat(gradients).norm(), norm, rtol=1e-2)
