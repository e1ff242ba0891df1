"""Checkpoints: what is read, what is refused, and what does not fit."""

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.logging import HistoryBuffer, MessageHub
from torch import nn

from autodrive.engine.checkpoint import (
    latest_checkpoint,
    load_weights,
    numbered_checkpoints,
    read_checkpoint,
)
from autodrive.engine.train import train
from tests.autodrive.toy_training import ToyModel, toy_config


class Unsafe:
    def __reduce__(self):
        return print, ("this must never run",)


def test_what_the_runner_saves_can_be_read_and_loaded_from(tmp_path):
    """K30."""
    first = train(toy_config(6), tmp_path / "a", device="cpu")
    hub = first.message_hub
    hub.update_scalar("train/grad_norm", np.float64(0.5))
    hub.update_info("best_score", np.float32(0.25))
    first.save_checkpoint(str(tmp_path), "saved.pth", by_epoch=False)

    content = read_checkpoint(tmp_path / "saved.pth")
    buffer = content["message_hub"]["log_scalars"]["train/grad_norm"]
    assert isinstance(buffer, HistoryBuffer) and buffer.current() == 0.5
    assert content["message_hub"]["runtime_info"]["best_score"] == np.float32(0.25)
    assert content["meta"]["iter"] == 7

    MessageHub.get_instance("other").load_state_dict(content["message_hub"])
    second = train(
        toy_config(1, validate=False),
        tmp_path / "b",
        device="cpu",
        load_from=tmp_path / "saved.pth",
    )
    assert second.iter == 1


def test_old_public_checkpoint_is_read(tmp_path):
    """K30: numpy scalars and arrays, meta with strings and a config, weights under a DDP prefix."""
    model = ToyModel()
    state = {f"module.{key}": value for key, value in model.state_dict().items()}
    meta = {"mmcv_version": "1.3.1", "epoch": np.int64(24), "lr": np.array([2e-4], np.float32)}
    meta["config"] = ConfigDict(a=1)
    torch.save({"state_dict": state, "meta": meta}, tmp_path / "old.pth")
    fresh = ToyModel()
    load_weights(fresh, tmp_path / "old.pth")
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in fresh.state_dict().items())
    assert read_checkpoint(tmp_path / "old.pth")["meta"]["epoch"] == 24


def test_numpy_scalar_under_its_old_module_name_is_read(tmp_path):
    """K30: numpy 1 called the module numpy.core, numpy 2 calls it numpy._core."""
    torch.save(
        {"best": np.float64(0.5)}, tmp_path / "new.pth", _use_new_zipfile_serialization=False
    )
    content = (tmp_path / "new.pth").read_bytes()
    old = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    (tmp_path / "old.pth").write_bytes(old)
    assert read_checkpoint(tmp_path / "old.pth")["best"] == 0.5


def test_unsafe_file_is_refused_with_the_name_of_the_class(tmp_path, capsys):
    """K30."""
    torch.save({"state_dict": {}, "extra": Unsafe()}, tmp_path / "unsafe.pth")
    with pytest.raises(ValueError) as refused:
        read_checkpoint(tmp_path / "unsafe.pth")
    message = str(refused.value)
    assert message.startswith(f"checkpoint {tmp_path / 'unsafe.pth'} was refused: it holds a ")
    assert "print" in message and "\n" not in message
    assert "must never run" not in capsys.readouterr().out


def test_getattr_is_allowed_for_history_buffers_only(tmp_path):
    class Reaches:
        def __reduce__(self):
            return getattr, (np.ndarray, "tofile")

    torch.save({"x": Reaches()}, tmp_path / "x.pth")
    with pytest.raises(ValueError, match=r"refused: it holds a builtins\.getattr"):
        read_checkpoint(tmp_path / "x.pth")


def test_other_shape_is_one_error_with_key_and_both_shapes(tmp_path):
    torch.save({"state_dict": ToyModel(width=16).state_dict()}, tmp_path / "wide.pth")
    expected = (
        r"wide\.pth does not fit the model: layers\.0\.weight is \(16, 4\), the model has \(8, 4\)"
    )
    with pytest.raises(ValueError, match=expected):
        load_weights(ToyModel(width=8), tmp_path / "wide.pth")
    with pytest.raises(ValueError, match=expected):
        train(toy_config(), tmp_path / "run", device="cpu", load_from=tmp_path / "wide.pth")


def test_missing_and_unknown_keys_are_named(tmp_path):
    torch.save(nn.Linear(4, 8).state_dict(), tmp_path / "other.pth")
    expected = r"layers\.0\.weight is missing; layers\.0\.bias is missing; .* and \d+ more"
    with pytest.raises(ValueError, match=expected):
        load_weights(ToyModel(), tmp_path / "other.pth")


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_damaged_file_is_named(tmp_path, size):
    torch.save(ToyModel(width=64).state_dict(), tmp_path / "a.pth")
    (tmp_path / "a.pth").write_bytes((tmp_path / "a.pth").read_bytes()[:size])
    with pytest.raises(ValueError, match=r"checkpoint .*a\.pth (is damaged|was refused)"):
        read_checkpoint(tmp_path / "a.pth")


def test_file_that_is_missing_or_no_checkpoint_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.pth does not exist"):
        read_checkpoint(tmp_path / "no.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ValueError, match=r"list\.pth must hold a dict, got list"):
        read_checkpoint(tmp_path / "list.pth")


def test_newest_is_by_number_and_others_are_no_checkpoints(tmp_path):
    for name in ("iter_9.pth", "iter_10.pth", "best.pth", ".iter_11.pth.tmp", "iter_x.pth"):
        torch.save({}, tmp_path / name)
    assert [p.name for p in numbered_checkpoints(tmp_path)] == ["iter_10.pth", "iter_9.pth"]
    assert latest_checkpoint(tmp_path).name == "iter_10.pth"
    assert latest_checkpoint(tmp_path / "nowhere") is None


def test_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    """A kill while the third checkpoint is being written leaves the second one as the latest."""
    import mmengine.runner.runner as runner_module

    save = runner_module.save_checkpoint

    def save_half(checkpoint, path, **options):
        save(checkpoint, path, **options)
        if "15" in str(path):
            with open(path, "r+b") as file:
                file.truncate(500)
            raise KeyboardInterrupt

    monkeypatch.setattr(runner_module, "save_checkpoint", save_half)
    with pytest.raises(KeyboardInterrupt):
        train(toy_config(), tmp_path, device="cpu")
    assert sorted(p.name for p in tmp_path.glob("iter*")) == ["iter_10.pth", "iter_5.pth"]
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / "iter_10.pth")


def test_newest_and_best_are_kept(tmp_path):
    train(toy_config(20), tmp_path, device="cpu")
    kept = sorted(path.name for path in tmp_path.glob("*.pth"))
    assert kept == ["best.pth", "iter_15.pth", "iter_20.pth"]
    best = read_checkpoint(tmp_path / "best.pth")
    assert best["meta"]["best"]["metric"] == "score" and "optimizer" not in best
