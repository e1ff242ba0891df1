"""The configurations: schedule as published, nano is the whole model in small."""

import math

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, PARAM_SCHEDULERS

from tests.examples.bevformer.small_model import make_sample

CONFIGS = "examples/bevformer/configs"


def learning_rates(config, iterations_per_epoch):
    """The rate at every iteration of the first 3 epochs, stepping schedulers as the runner does."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=config.optim_wrapper.optimizer.lr)
    schedulers = [
        PARAM_SCHEDULERS.build(dict(scheduler, optimizer=optimizer))
        for scheduler in config.param_scheduler
    ]
    rates = []
    for _ in range(3):
        for _ in range(iterations_per_epoch):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            for scheduler in schedulers:
                if not scheduler.by_epoch:
                    scheduler.step()
        for scheduler in schedulers:
            if scheduler.by_epoch:
                scheduler.step()
    return rates


def test_learning_rate_follows_the_published_schedule():
    config = Config.fromfile(f"{CONFIGS}/base.py")
    n = 600
    rates = learning_rates(config, n)
    for i in (0, 1, 250, 499, 500, 599, 600, 1199, 1200, 1799):
        low = 2e-4 * 1e-3
        epoch = low + (2e-4 - low) * (1 + math.cos(math.pi * (i // n) / 24)) / 2
        assert rates[i] == pytest.approx(epoch * (1 - max(0, 1 - i / 500) * 2 / 3), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "total", "trainable"),
    [("tiny", 33.52, 33.25), ("small", 59.46, 59.14), ("base", 69.03, 68.71)],
)
def test_number_of_parameters(name, total, trainable):
    with torch.device("meta"):
        model = MODELS.build(Config.fromfile(f"{CONFIGS}/{name}.py").model)
    counts = [(p.numel() / 1e6, p.requires_grad) for p in model.parameters()]
    assert sum(n for n, _ in counts) == pytest.approx(total, abs=0.01)
    assert sum(n for n, grad in counts if grad) == pytest.approx(trainable, abs=0.01)


def test_frozen_parts_stay_frozen_in_training():
    config = Config.fromfile(f"{CONFIGS}/tiny.py").model
    config.img_backbone.init_cfg = None
    model = MODELS.build(config).train()
    norms = [m for m in model.img_backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert not any(m.training or m.weight.requires_grad for m in norms)
    assert not any(p.requires_grad for p in model.img_backbone.layer1.parameters())
    assert all(
        m.weight.requires_grad
        for m in model.img_backbone.layer2.modules()
        if isinstance(m, torch.nn.Conv2d)
    )


def test_nano_trains_and_predicts():
    torch.manual_seed(0)
    model = MODELS.build(Config.fromfile(f"{CONFIGS}/nano.py").model)
    model.init_weights()
    _, sample = make_sample(0)
    images = torch.randn(2, 6, 3, 192, 320)
    losses = model.train()({"img": [images]}, [sample], mode="loss")
    sum(losses.values()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None or name.endswith("code_weights"), name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    with torch.no_grad():
        (result,) = model.eval()({"img": [images[1:]]}, [one_frame(sample)], mode="predict")
    prediction = result.pred_instances_3d
    assert prediction.bboxes_3d.tensor.shape == (len(prediction.scores_3d), 9)
    assert (prediction.scores_3d.diff() <= 0).all()


def one_frame(sample):
    keys = ("lidar2img", "can_bus", "prev_bev_exists", "scene_token", "token", "timestamp")
    sample.set_metainfo({key: getattr(sample, key)[-1:] for key in keys})
    assert np.shape(sample.lidar2img) == (1, 6, 4, 4)
    return sample


def test_unknown_key_in_the_model_is_named():
    config = Config.fromfile(f"{CONFIGS}/nano.py").model
    config.pts_bbox_head.number_of_queries = 10
    with pytest.raises(TypeError, match="number_of_queries"):
        MODELS.build(config)
