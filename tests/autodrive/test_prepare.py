"""Info files against the official devkit, and what may be wrong with a nuScenes folder."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from nuscenes import NuScenes
from nuscenes.can_bus.can_bus_api import NuScenesCanBus
from nuscenes.eval.detection.utils import category_to_detection_name

from autodrive.cli import main
from autodrive.data import prepare as module
from autodrive.data.can_bus import stored_can_bus
from autodrive.data.check import check
from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.data.dataset import NuScenesSequenceDataset
from autodrive.data.info import info_path, lidar2img, load_infos
from autodrive.data.point_cloud import read_points
from autodrive.data.prepare import prepare
from autodrive.data.transforms import LoadMultiViewImages

SPLITS = ("train", "val")


@pytest.fixture(scope="module")
def prepared(synth_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Info files in a folder of their own, as for a nuScenes folder that is read-only."""
    out = tmp_path_factory.mktemp("infos")
    prepare(synth_root, "v1.0-mini", out)
    return out


@pytest.fixture(scope="module")
def nusc(synth_root: Path) -> NuScenes:
    return NuScenes("v1.0-mini", str(synth_root), verbose=False)


@pytest.fixture
def copy(synth_root: Path, tmp_path: Path) -> Path:
    """A dataset that may be changed, but for the contents of its files: they are shared."""
    root = tmp_path / "nuscenes"
    shutil.copytree(synth_root, root, copy_function=os.link)
    return root


def rewrite(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


def infos_of(root: Path) -> list[dict]:
    return [info for split in SPLITS for info in load_infos(root, split)["data_list"]]


def test_splits_and_order_are_the_official_ones(prepared, nusc):
    for split, scene in zip(SPLITS, nusc.scene):
        infos = load_infos(prepared, split)
        assert infos["metainfo"]["eval_set"] == f"mini_{split}"
        assert infos["metainfo"]["categories"] == {name: i for i, name in enumerate(CLASSES)}
        token, tokens = scene["first_sample_token"], []
        while token:
            tokens.append(token)
            token = nusc.get("sample", token)["next"]
        data = infos["data_list"]
        assert [info["token"] for info in data] == tokens
        assert [info["sample_idx"] for info in data] == list(range(len(tokens)))
        assert [info["frame_idx"] for info in data] == list(range(len(tokens)))
        assert {info["scene_token"] for info in data} == {scene["token"]}
        for info in data:
            sample = nusc.get("sample", info["token"])
            assert (info["prev"], info["next"]) == (sample["prev"], sample["next"])
            assert info["timestamp"] == pytest.approx(sample["timestamp"] * 1e-6, abs=1e-6)


def test_boxes_and_velocities_are_the_devkits(prepared, nusc):
    unknown = 0
    for info in infos_of(prepared):
        sample = nusc.get("sample", info["token"])
        _, boxes, _ = nusc.get_sample_data(sample["data"]["LIDAR_TOP"])
        assert len(boxes) == len(info["instances"]) > 0
        lidar2global = np.array(info["ego2global"]) @ info["lidar_points"]["lidar2ego"]
        for box, instance in zip(boxes, info["instances"]):
            annotation = nusc.get("sample_annotation", box.token)
            x, y, z, length, width, height, yaw = instance["bbox_3d"]
            np.testing.assert_allclose([x, y, z], box.center, atol=1e-6)
            np.testing.assert_allclose([width, length, height], box.wlh)
            turned = yaw - box.orientation.yaw_pitch_roll[0]
            assert abs(np.angle(np.exp(1j * turned))) < 1e-3
            name = category_to_detection_name(annotation["category_name"])
            assert instance["bbox_label_3d"] == (CLASSES.index(name) if name else -1)
            points = annotation["num_lidar_pts"] + annotation["num_radar_pts"]
            assert instance["bbox_3d_isvalid"] == (points > 0)
            velocity = nusc.box_velocity(box.token)
            back = lidar2global[:2, :2] @ instance["velocity"]
            np.testing.assert_allclose(back, velocity[:2], atol=0.02)
            unknown += np.isnan(velocity).any()
    assert unknown < len(nusc.sample_annotation) / 2


def test_boxes_land_where_the_devkit_projects_them(prepared, nusc):
    """With the motion of the ego between the shutter times of lidar and camera."""
    seen = 0
    for info in infos_of(prepared):
        sample = nusc.get("sample", info["token"])
        assert list(info["images"]) == list(CAMERAS)
        for camera, image in info["images"].items():
            path, boxes, intrinsic = nusc.get_sample_data(sample["data"][camera])
            assert path == str(Path(nusc.dataroot) / image["img_path"])
            by_token = {box.token: box for box in boxes}
            for token, instance in zip(sample["anns"], info["instances"]):
                if token not in by_token:
                    continue
                expected = intrinsic @ by_token[token].center
                found = lidar2img(image) @ [*instance["bbox_3d"][:3], 1]
                np.testing.assert_allclose(
                    found[:2] / found[2], expected[:2] / expected[2], atol=1e-3
                )
                seen += 1
    assert seen > 100


def test_sweeps_go_back_in_time_and_lie_on_each_other(prepared, nusc):
    """K45: lags of 0.05 s, 0.10 s, ... to 1e-4 s, in seconds."""
    lengths = []
    for info in infos_of(prepared):
        sweeps = info["lidar_sweeps"]
        lengths.append(len(sweeps))
        lags = [info["timestamp"] - sweep["timestamp"] for sweep in sweeps]
        np.testing.assert_allclose(lags, 0.05 * np.arange(1, len(sweeps) + 1), atol=1e-4)
        lidar2global = np.array(info["ego2global"]) @ info["lidar_points"]["lidar2ego"]
        for sweep in sweeps:
            assert len(read_points(Path(nusc.dataroot) / sweep["lidar_points"]["lidar_path"]))
            sweep2global = sweep["ego2global"] @ sweep["lidar_points"]["lidar2ego"]
            back = sweep2global @ sweep["lidar_points"]["lidar2sensor"]
            np.testing.assert_allclose(back, lidar2global, atol=1e-6)
    assert lengths == [0, 10, 10, 10, 10, 10] * 2


def test_can_bus_is_the_scenes_pose_message(prepared, synth_root, nusc):
    api = NuScenesCanBus(str(synth_root))
    for info in infos_of(prepared):
        messages = api.get_messages(info["scene_name"], "pose")
        expected, valid = stored_can_bus(messages, nusc.get("sample", info["token"])["timestamp"])
        np.testing.assert_array_equal(info["can_bus"], expected)
        assert info["can_bus_valid"] and valid
        position = np.array(info["ego2global"])[:3, 3]
        np.testing.assert_allclose(info["can_bus"][:2], position[:2], atol=1.0)


def test_infos_beside_or_apart_from_the_files_serve_alike(prepared, copy):
    prepare(copy, "v1.0-mini")
    items = [
        NuScenesSequenceDataset(
            str(root), pipeline=[dict(type=LoadMultiViewImages, width=32)], queue_length=1
        )[3]
        for root in (prepared, copy)
    ]
    assert (items[0]["inputs"]["img"] == items[1]["inputs"]["img"]).all()
    assert sorted(p.name for p in prepared.iterdir()) == [
        info_path(prepared, split).name for split in SPLITS
    ]


def interrupted(root: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepares the first scene, then stops."""
    whole, done = module.scene_infos, []

    def stop(nusc, scene, can_bus):
        if done:
            raise KeyboardInterrupt
        done.append(scene["name"])
        return whole(nusc, scene, can_bus)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "scene_infos", stop)
        prepare(root, "v1.0-mini", out)
    assert len(done) == 1


def prepared_scenes(root: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many scenes a run really makes."""
    whole, done = module.scene_infos, []

    def count(*arguments):
        done.append(arguments)
        return whole(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "scene_infos", count)
        prepare(root, "v1.0-mini", out)
    return len(done)


def test_interrupted_run_goes_on_with_the_next_scene(synth_root, prepared, tmp_path, monkeypatch):
    interrupted(synth_root, tmp_path, monkeypatch)
    assert not info_path(tmp_path, "val").exists()
    assert prepared_scenes(synth_root, tmp_path, monkeypatch) == 1
    for split in SPLITS:
        np.testing.assert_equal(load_infos(tmp_path, split), load_infos(prepared, split))
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


@pytest.mark.parametrize("changed", ["v1.0-mini/sample.json", "can_bus"])
def test_scenes_of_an_interrupted_run_on_other_data_are_not_taken(
    copy, tmp_path, monkeypatch, changed
):
    interrupted(copy, tmp_path, monkeypatch)
    if changed == "can_bus":
        shutil.rmtree(copy / changed)
    else:
        table = json.loads((copy / changed).read_text())
        rewrite(copy / changed, json.dumps(table, indent=1).encode())
    assert prepared_scenes(copy, tmp_path, monkeypatch) == 2


def test_missing_can_bus_folder_gives_zeros_and_one_line(copy, capsys):
    """K41"""
    shutil.rmtree(copy / "can_bus")
    prepare(copy, "v1.0-mini")
    infos = infos_of(copy)
    assert not any(info["can_bus"].any() or info["can_bus_valid"] for info in infos)
    output = capsys.readouterr().out
    assert output.count("can_bus does not exist: models get zeros") == 1
    assert "6 key frames of 1 scenes without CAN bus (6 of zeros)" in output


def test_scene_without_can_bus_and_late_first_message_are_counted(copy, capsys):
    """K41"""
    train, val = sorted((copy / "can_bus").glob("*_pose.json"))
    messages = json.loads(train.read_text())
    late = load_time(copy, "scene", 0) + 600_000  # after the first two of its samples
    rewrite(train, json.dumps([m for m in messages if m["utime"] > late]).encode())
    val.unlink()
    prepare(copy, "v1.0-mini")
    infos = load_infos(copy, "train")["data_list"]
    assert [info["can_bus_valid"] for info in infos] == [False] * 2 + [True] * 4
    np.testing.assert_array_equal(infos[0]["can_bus"], infos[1]["can_bus"])
    assert infos[0]["can_bus"].any()
    infos = load_infos(copy, "val")["data_list"]
    assert not any(info["can_bus"].any() or info["can_bus_valid"] for info in infos)
    output = capsys.readouterr().out
    assert "2 key frames of 1 scenes without CAN bus (0 of zeros, 2 from before" in output
    assert "6 key frames of 1 scenes without CAN bus (6 of zeros)" in output


def load_time(root: Path, table: str, row: int) -> int:
    scene = json.loads((root / "v1.0-mini" / f"{table}.json").read_text())[row]
    samples = json.loads((root / "v1.0-mini" / "sample.json").read_text())
    return next(s["timestamp"] for s in samples if s["token"] == scene["first_sample_token"])


def test_scene_that_the_devkit_lists_as_lacking_can_data_gives_no_messages(copy):
    """K41"""
    pose = next((copy / "can_bus").glob("*_pose.json"))
    shutil.copy(pose, copy / "can_bus" / "scene-0161_pose.json")
    assert module.PoseMessages(copy)["scene-0161"] == []


def first_image(root: Path) -> Path:
    return next((root / "samples" / "CAM_BACK").glob("*.jpg"))


BROKEN = {
    "no root": (lambda root: shutil.rmtree(root), FileNotFoundError, "nuscenes is not a folder"),
    "no version": (
        lambda root: (root / "v1.0-mini").rename(root / "v1.0-test"),
        FileNotFoundError,
        "v1.0-mini does not exist; .* has v1.0-test",
    ),
    "no table": (
        lambda root: (root / "v1.0-mini" / "ego_pose.json").unlink(),
        FileNotFoundError,
        "ego_pose.json does not exist",
    ),
    "half a table": (
        lambda root: rewrite(root / "v1.0-mini" / "ego_pose.json", b'[{"token": "a"'),
        ValueError,
        "ego_pose.json is damaged, 14 bytes",
    ),
    "no camera": (
        lambda root: shutil.rmtree(root / "samples" / "CAM_BACK"),
        FileNotFoundError,
        "samples/CAM_BACK does not exist",
    ),
    "no image": (
        lambda root: first_image(root).unlink(),
        FileNotFoundError,
        r"CAM_BACK.*\.jpg does not exist, sample_data .* needs it",
    ),
    "no sweep": (
        lambda root: next((root / "sweeps" / "LIDAR_TOP").iterdir()).unlink(),
        FileNotFoundError,
        r"LIDAR_TOP.*\.pcd\.bin does not exist",
    ),
    "half a can_bus file": (
        lambda root: rewrite(next((root / "can_bus").glob("*_pose.json")), b"[{"),
        ValueError,
        r"_pose\.json is damaged, 2 bytes",
    ),
    "unknown scenes": (
        lambda root: rewrite(
            root / "v1.0-mini" / "scene.json",
            (root / "v1.0-mini" / "scene.json").read_bytes().replace(b"scene-0", b"scene-9"),
        ),
        ValueError,
        "has 2 scenes, and none of them is in the official splits mini_train, mini_val",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_missing_or_damaged_is_named(copy, kind):
    break_it, error, problem = BROKEN[kind]
    break_it(copy)
    with pytest.raises(error, match=problem):
        prepare(copy, "v1.0-mini")
    assert not copy.exists() or not any(copy.glob("autodrive_infos_*.pkl"))


def test_unknown_version_is_refused(synth_root):
    with pytest.raises(ValueError, match=r"version must be one of .*, got 'v1\.0-test'"):
        prepare(synth_root, "v1.0-test")


def test_command_ends_with_one_line_and_a_code(copy):
    (copy / "v1.0-mini" / "sample.json").unlink()
    with pytest.raises(SystemExit) as stop:
        main(["data", "prepare", "--root", str(copy), "--version", "v1.0-mini"])
    message = str(stop.value.code)
    assert message.startswith("autodrive data prepare: error: table") and "\n" not in message


def test_check_lists_every_damaged_file_and_fails(copy, capsys):
    """K46"""
    image = first_image(copy)
    key, other = sorted((copy / "samples" / "LIDAR_TOP").iterdir())[:2]
    sweep = next((copy / "sweeps" / "LIDAR_TOP").iterdir())
    rewrite(image, image.read_bytes()[:1000])
    rewrite(key, key.read_bytes()[:-3])
    rewrite(other, b"")
    rewrite(sweep, bytes(400))
    damaged, total = check(copy, workers=2)
    assert total == 2 * 6 * 6 + 2 * 51
    assert len(damaged) == 4
    for path, size in [(image, 1000), (key, key.stat().st_size), (other, 0), (sweep, "20 points")]:
        (line,) = [problem for problem in damaged if str(path) in problem]
        assert str(size) in line
    with pytest.raises(SystemExit, match=f"4 of {total} files are damaged"):
        main(["data", "check", "--root", str(copy), "--workers", "1"])
    assert capsys.readouterr().out.count("is damaged") == 4


def test_check_of_a_folder_without_files_fails(tmp_path):
    with pytest.raises(SystemExit, match="has no images or point clouds"):
        main(["data", "check", "--root", str(tmp_path)])
