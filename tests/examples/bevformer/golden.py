"""The official numbers in tests/data/bevformer, and the rule of their weights and inputs."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from examples.bevformer import BEVFormerHead

DATA = Path(__file__).parents[2] / "data" / "bevformer"
HEAD = "pts_bbox_head."


def cases(*prefixes: str) -> list[str]:
    return sorted(path.stem for path in DATA.glob("*.npz") if path.stem.startswith(prefixes))


class Case:
    """A golden case: `case["out_y"]` is a stored array, `case.rule("x")` an input made by rule."""

    def __init__(self, name: str) -> None:
        with np.load(DATA / f"{name}.npz") as stored:
            self.arrays = dict(stored)
        self.meta: dict[str, Any] = json.loads(str(self.arrays.pop("meta")))
        self.config: dict[str, Any] = self.meta["config"]

    def __getitem__(self, key: str) -> np.ndarray:
        return self.arrays[key]

    def __contains__(self, key: str) -> bool:
        return key in self.arrays

    def rule(self, name: str) -> Tensor:
        rule = self.meta["rules"][name]
        seed = zlib.crc32(f"{self.meta['case']}/{name}".encode())
        values = np.random.default_rng(seed).standard_normal(rule["shape"]).astype(np.float32)
        return torch.from_numpy(values * np.float32(rule["scale"]))

    def features(self) -> list[Tensor]:
        names = sorted(name for name in self.meta["rules"] if name.startswith("feat_"))
        return [self.rule(name) for name in names]


def _weight_std(key: str, shape: tuple[int, ...]) -> float:
    table = ("bev_embedding.weight", "query_embedding.weight", "row_embed.weight")
    table += ("col_embed.weight", "level_embeds", "cams_embeds")
    if key.endswith(table):
        return 1
    if key.startswith(HEAD):
        branch = key.split(".")
        if key.endswith(("sampling_offsets.weight", "attention_weights.weight")):
            return 0.1
        if key.endswith(("value_proj.weight", "output_proj.weight")):
            return 0.06
        if key == HEAD + "transformer.reference_points.weight":
            return 0.1
        if branch[1] == "cls_branches" and key.endswith(("0.weight", "3.weight", "6.weight")):
            return 0.1
        if branch[1] == "reg_branches" and key.endswith(("0.weight", "2.weight")):
            return 0.1
    if len(shape) == 4 and "conv_offset" not in key:
        fan_in = np.prod(shape[1:])
        if key.startswith("img_backbone."):
            return np.sqrt(2 / fan_in) * (0.2 if ".conv3." in key else 1)
        if key.startswith("img_neck."):
            return np.sqrt(1 / fan_in)
    return 0.02


def set_weights(module: nn.Module, prefix: str) -> None:
    """Gives `module`, which is `prefix` in the whole model, the weights of the rule; no dropout."""
    norms = (nn.LayerNorm, nn.BatchNorm2d)
    norm_names = {name for name, child in module.named_modules() if isinstance(child, norms)}
    for name, value in module.state_dict(keep_vars=True).items():
        if name.endswith("num_batches_tracked") or name.endswith("code_weights"):
            continue
        key = prefix + name
        parent, _, leaf = name.rpartition(".")
        is_norm = parent in norm_names
        std = 0.02 if is_norm else _weight_std(key, tuple(value.shape))
        seed = zlib.crc32(key.encode())
        values = np.random.default_rng(seed).standard_normal(tuple(value.shape))
        values = values.astype(np.float32) * np.float32(std)
        if is_norm and leaf == "weight":
            values = 1 + values
        if leaf == "running_var":
            values = 1 + np.abs(values)
        with torch.no_grad():
            value.copy_(torch.from_numpy(values))
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
        if isinstance(child, nn.MultiheadAttention):
            child.dropout = 0.0


def head_config(config: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `BEVFormerHead` for the `config` of a golden case."""
    bev_h, bev_w = config["bev"]
    arguments = dict(
        bev_h=bev_h,
        bev_w=bev_w,
        encoder_layers=config.get("encoder_layers", 1),
        decoder_layers=config.get("decoder_layers", 1),
        num_query=config.get("num_query", 10),
        num_levels=4 if config.get("config") == "base" else 1,
        shift_current=config.get("shift_current", True),
        rotate_center=tuple(config.get("rotate_center", (100, 100))),
    )
    for key in ("max_num", "post_center_range"):
        if key in config:
            arguments[key] = config[key]
    return arguments


def make_head(config: dict[str, Any]) -> BEVFormerHead:
    head = BEVFormerHead(**head_config(config))
    set_weights(head, HEAD)
    return head.eval()


def lidar_boxes(boxes: np.ndarray) -> Tensor:
    """Official rows (x, y, z_bottom, w, l, h, theta, vx, vy) to lidar boxes."""
    boxes = torch.from_numpy(boxes).float()
    order = boxes[..., [0, 1, 2, 4, 3, 5, 6, 7, 8]].clone()
    order[..., 6] = -boxes[..., 6] - torch.pi / 2
    return order


def assert_close(actual: Any, expected: Any, atol: float = 0.0, rtol: float = 0.0) -> None:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else np.asarray(actual)
    np.testing.assert_allclose(actual.reshape(np.shape(expected)), expected, atol=atol, rtol=rtol)


def assert_same_boxes(prediction: Any, case: Case, suffix: str, atol: float, scores: float) -> None:
    """Decoded boxes; rows may be swapped where scores differ by less than their tolerance."""
    boxes, labels = case[f"out_boxes{suffix}"], case[f"out_labels{suffix}"]
    expected = lidar_boxes(boxes)
    found = prediction.bboxes_3d.tensor
    assert found.shape == expected.shape
    assert_close(prediction.scores_3d, case[f"out_scores{suffix}"], atol=scores)
    difference = (found[:, None] - expected[None]).abs()
    turn = torch.remainder(difference[..., 6] + torch.pi, 2 * torch.pi) - torch.pi
    difference[..., 6] = turn.abs()
    score_gap = prediction.scores_3d[:, None] - torch.from_numpy(case[f"out_scores{suffix}"])[None]
    same = (difference.amax(-1) <= atol) & (score_gap.abs() <= scores)
    same &= prediction.labels_3d[:, None] == torch.from_numpy(labels)[None]
    # Only rows near the cut of max_num may have no partner.
    lonely = ~same.any(1)
    cut = prediction.scores_3d[-1] + scores
    assert (prediction.scores_3d[lonely] <= cut).all(), f"{int(lonely.sum())} rows differ"
    assert lonely.sum() <= 2
