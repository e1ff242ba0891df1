"""Optimizer groups: one for each learning rate and weight decay, not one for each parameter."""

from collections.abc import Hashable

from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS
from torch import nn


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class GroupedOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """mmengine's constructor, with the groups of equal settings merged.

    It makes a group of every parameter as soon as one has settings of its own. Optimizers work group by group, so
    hundreds of groups of one tensor cost hundreds of times the launches of one group of hundreds.
    """

    def add_params(self, params: list[dict], module: nn.Module, prefix: str = "", **kwargs) -> None:
        super().add_params(params, module, prefix, **kwargs)
        if not prefix:
            params[:] = merged(params)


def merged(groups: list[dict]) -> list[dict]:
    """Groups with the same settings become one, in order of first appearance."""
    result: dict[Hashable, dict] = {}
    for group in groups:
        settings = tuple(sorted((k, v) for k, v in group.items() if k != "params"))
        found = result.setdefault(settings, {**group, "params": []})
        found["params"] += list(group["params"])
    return list(result.values())
