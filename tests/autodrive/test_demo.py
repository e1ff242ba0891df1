"""The demo from end to end, small, and that its stages can be interrupted and repeated."""

import json
import re

import pytest

from autodrive.engine.demo import CONFIG, Stages, demo, read_seconds
from autodrive.engine.evaluate import METRICS, metrics_table, summary_of_config


def test_done_stages_are_skipped_for_the_same_settings_only(tmp_path, capsys):
    path = tmp_path / "stages.json"
    stages = Stages(path, {"seed": 0})
    with stages.stage("one") as needed:
        assert needed
    with pytest.raises(KeyboardInterrupt), stages.stage("two"):
        raise KeyboardInterrupt
    again = Stages(path, {"seed": 0})
    with again.stage("one") as needed:
        assert not needed
    with again.stage("two") as needed:
        assert needed
    assert again.done == ["one", "two"] and again.seconds.keys() == {"one", "two"}
    assert "==> one: done by an earlier run" in capsys.readouterr().out
    other = Stages(path, {"seed": 1})
    assert not other.same and other.done == [] and other.seconds == {}


def test_seconds_of_interrupted_runs_are_added(tmp_path, monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 12.0])
    monkeypatch.setattr("autodrive.engine.demo.time.monotonic", lambda: next(clock))
    path = tmp_path / "stages.json"
    with pytest.raises(KeyboardInterrupt), Stages(path, {}).stage("training"):
        raise KeyboardInterrupt
    stages = Stages(path, {})
    with stages.stage("training"):
        pass
    assert stages.seconds == {"training": 7.0}


def test_install_seconds(tmp_path):
    path = tmp_path / "seconds.json"
    assert read_seconds(path) == {}
    path.write_text('{"install torch": 61}')
    assert read_seconds(path) == {"install torch": 61.0}
    for text in ("[1]", '{"a": "b"}', "{"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"seconds\.json must be a JSON file of the form"):
            read_seconds(path)


def test_metrics_table_is_aligned():
    table = metrics_table({"a": {"mAP": 0.5, "AP/car": 1.0}, "unseen": {"mAP": float("nan")}})
    lines = table.splitlines()
    assert len(lines) == 1 + len(METRICS) and len({len(line) for line in lines}) == 1
    assert lines[1].split() == ["mAP", "0.500", "-"]


def test_summary_names_the_model():
    from autodrive.engine.config import load_config

    summary = summary_of_config(load_config(CONFIG))
    assert summary["model"] == "BEVFormer" and summary["backbone"] == "ResNet-18"
    assert re.fullmatch(r"\d\.\d\d million", summary["parameters"])


@pytest.mark.slow
def test_demo_end_to_end(tmp_path, capsys):
    out = tmp_path / "demo"
    (tmp_path / "install.json").write_text('{"install torch": 10}')
    options = dict(
        duration=2.0,
        size=(320, 180),
        minutes=0.2,
        device="cpu",
        install_seconds=tmp_path / "install.json",
    )
    result = demo(out, **options)
    output = capsys.readouterr()
    assert re.search(r"training: .* s, left \d\d:\d\d, iteration \d+", output.err)
    assert re.search(r"^mAP +\d\.\d\d\d +\d\.\d\d\d$", output.out, re.MULTILINE)
    stages = [
        "install torch",
        "synthetic dataset",
        "info files",
        "training",
        "evaluation on training scenes",
        "evaluation on unseen scenes",
        "report",
    ]
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics == result
    assert list(metrics["seconds"]) == stages
    for split in ("train", "val"):
        assert 0 <= metrics[split]["mAP"] <= 1 and 0 <= metrics[split]["NDS"] <= 1
    pictures = {path.name for path in (out / "pictures").iterdir()}
    assert "loss.png" in pictures
    for kind in ("cameras.jpg", "bev.png"):
        assert sum(name.startswith("train_") and name.endswith(kind) for name in pictures) == 3
        assert sum(name.startswith("val_") and name.endswith(kind) for name in pictures) == 3
    page = (out / "report.html").read_text()
    assert page.count("<img") == len(pictures) == 13 and "ResNet-18" in page

    checkpoint = max((out / "train").glob("iter_*.pth")).stat().st_mtime_ns
    again = demo(out, **options)
    assert capsys.readouterr().out.count("done by an earlier run") == 6
    assert again == result
    assert max((out / "train").glob("iter_*.pth")).stat().st_mtime_ns == checkpoint
