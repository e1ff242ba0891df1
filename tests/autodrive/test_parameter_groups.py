import torch
from mmengine.optim import OptimWrapper
from torch import nn

from autodrive.engine.parameter_groups import GroupedOptimWrapperConstructor, merged


def build(**paramwise):
    model = nn.ModuleDict(
        {
            "img_backbone": nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3)),
            "head": nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)),
        }
    )
    config = dict(
        type=OptimWrapper, optimizer=dict(type=torch.optim.AdamW, lr=1.0, weight_decay=0.1)
    )
    return model, GroupedOptimWrapperConstructor(config, paramwise)(model).optimizer


def test_one_group_for_each_learning_rate():
    model, optimizer = build(custom_keys={"img_backbone": dict(lr_mult=0.1)})
    rates = {group["lr"]: len(group["params"]) for group in optimizer.param_groups}
    assert rates == {0.1: 4, 1.0: 4}
    own = {id(p) for p in model["img_backbone"].parameters()}
    (slow,) = (g for g in optimizer.param_groups if g["lr"] == 0.1)
    assert {id(p) for p in slow["params"]} == own


def test_every_parameter_is_optimized_once():
    model, optimizer = build(custom_keys={"head.0": dict(decay_mult=0.0)})
    found = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in model.parameters())


def test_groups_with_other_settings_stay_apart():
    groups = [{"params": [1], "lr": 1}, {"params": [2], "lr": 2}, {"params": [3], "lr": 1}]
    assert merged(groups) == [{"params": [1, 3], "lr": 1}, {"params": [2], "lr": 2}]
