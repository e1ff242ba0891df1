"""Checkpoints in the form of the official ones load exactly or not at all."""

import zipfile

import numpy as np
import pytest
import torch

from autodrive.engine.checkpoint import load_weights
from tests.examples.bevformer.small_model import small_model


def save_as_in_2022(content, path):
    """Under numpy 1, whose modules had other names than numpy 2's."""
    torch.save(content, path.with_suffix(".new"))
    with zipfile.ZipFile(path.with_suffix(".new")) as new, zipfile.ZipFile(path, "w") as old:
        for name in new.namelist():
            data = new.read(name)
            if name.endswith("data.pkl"):
                data = data.replace(b"cnumpy._core.", b"cnumpy.core.")
            old.writestr(name, data)


def test_old_checkpoint_with_numpy_scalars_loads(tmp_path):
    """K30: what mmcv 1.x wrote beside the weights, and DDP's prefix."""
    source, target = small_model(), small_model()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(1)
    state = {f"module.{key}": value for key, value in source.state_dict().items()}
    meta = {"epoch": 24, "time": "Mon", "best": np.float64(0.25), "count": np.int64(3)}
    content = {"meta": meta, "state_dict": state, "optimizer": {}}
    save_as_in_2022(content, tmp_path / "old.pth")
    load_weights(target, tmp_path / "old.pth")
    for key, value in target.state_dict().items():
        assert torch.equal(value, source.state_dict()[key]), key


def test_other_shapes_and_keys_are_named(tmp_path):
    torch.save(small_model(bev_h=6).state_dict(), tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"bev_embedding.weight is \(48, 32\), .* \(80, 32\)"):
        load_weights(small_model(), tmp_path / "other.pth")
    state = small_model().state_dict()
    state["extra"] = state.pop("img_neck.lateral_convs.0.conv.weight")
    torch.save(state, tmp_path / "keys.pth")
    with pytest.raises(ValueError, match=r"lateral_convs.0.conv.weight is missing; extra is not"):
        load_weights(small_model(), tmp_path / "keys.pth")
