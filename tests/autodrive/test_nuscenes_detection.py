"""The official metrics, from predictions in the lidar frame."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from mmdet3d.structures import Det3DDataSample, LiDARInstance3DBoxes
from mmengine.evaluator import Evaluator
from mmengine.structures import InstanceData
from nuscenes import NuScenes
from nuscenes.eval.common.config import config_factory
from nuscenes.eval.detection.evaluate import DetectionEval
from nuscenes.eval.detection.utils import category_to_detection_name

from autodrive.data.classes import CLASSES
from autodrive.data.info import load_infos
from autodrive.data.prepare import prepare
from autodrive.metrics import NuScenesDetectionMetric
from autodrive.metrics.nuscenes_detection import Prediction, evaluate_predictions, submission_boxes
from tests.autodrive.small_data import instance, write_key_frame, write_prepared

ERRORS = ("mATE", "mASE", "mAOE", "mAVE")


@pytest.fixture(scope="module")
def prepared(synth_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("infos")
    prepare(synth_root, "v1.0-mini", out)
    return out


@pytest.fixture(scope="module")
def nusc(synth_root: Path) -> NuScenes:
    return NuScenes("v1.0-mini", str(synth_root), verbose=False)


def truth_as_prediction(info: dict, categories: dict, classes=CLASSES) -> Prediction:
    """All boxes of a key frame that hold a point, as a perfect network would predict them."""
    names = {number: name for name, number in categories.items()}
    boxes, labels = [], []
    for found in info["instances"]:
        name = names.get(found["bbox_label_3d"])
        if name is None or not found["num_lidar_pts"] + found["num_radar_pts"]:
            continue
        x, y, z, length, width, height, yaw = found["bbox_3d"]
        velocity = np.nan_to_num(found["velocity"])
        boxes.append([x, y, z - height / 2, length, width, height, yaw, *velocity])
        labels.append(classes.index(name))
    rows = np.array(boxes, dtype=np.float32).reshape(-1, 9)
    scores = np.linspace(0.9, 0.5, len(rows), dtype=np.float32)
    return Prediction(info["token"], rows, scores, np.array(labels, dtype=np.int64))


def perfect(root: Path, split: str, classes=CLASSES) -> list[Prediction]:
    infos = load_infos(root, split)
    categories = infos["metainfo"]["categories"]
    return [truth_as_prediction(info, categories, classes) for info in infos["data_list"]]


def empty(token: str) -> Prediction:
    return Prediction(token, np.zeros((0, 9)), np.zeros(0), np.zeros(0, dtype=np.int64))


@pytest.mark.parametrize("split", ["train", "val"])
def test_perfect_predictions_are_perfect(prepared, split):
    metrics = evaluate_predictions(perfect(prepared, split), prepared, split)
    assert metrics["mAP"] == pytest.approx(1, abs=1e-6)
    assert [metrics[f"AP/{name}"] for name in CLASSES] == pytest.approx([1] * 10, abs=1e-6)
    assert max(metrics[error] for error in ERRORS) < 0.05
    assert metrics["NDS"] == pytest.approx(1 - metrics["mAAE"] / 10, abs=0.02)


def test_no_predictions_at_all_score_zero(prepared):
    tokens = [info["token"] for info in load_infos(prepared, "val")["data_list"]]
    metrics = evaluate_predictions([empty(token) for token in tokens], prepared, "val")
    assert metrics["mAP"] == metrics["NDS"] == 0
    assert [metrics[error] for error in ERRORS] == [1] * 4


def test_moved_and_turned_boxes_have_the_errors_they_should(prepared):
    """Half a metre to the right of the ego counts at three of the four distances: AP 3/4."""
    moved = []
    for prediction in perfect(prepared, "val"):
        boxes = prediction.boxes.copy()
        boxes[:, 0] += 0.6
        boxes[:, 6] += 0.1
        boxes[:, 3] *= 2
        moved.append(replace(prediction, boxes=boxes))
    metrics = evaluate_predictions(moved, prepared, "val")
    # Objects closer together than that may be mixed up.
    assert metrics["AP/car"] == pytest.approx(0.75, abs=0.02)
    assert metrics["mATE"] == pytest.approx(0.6, abs=0.02)
    assert metrics["mAOE"] == pytest.approx(0.1, abs=0.02)
    assert metrics["mASE"] == pytest.approx(0.5, abs=0.02)


def test_result_is_what_the_devkit_makes_of_its_own_annotations(prepared, nusc, tmp_path):
    """The lidar frame and back: the same file as written straight from the tables."""
    evaluate_predictions(perfect(prepared, "val"), prepared, "val", out_dir=tmp_path)
    results = json.loads((tmp_path / "results_nusc.json").read_text())["results"]
    compared = 0
    for token, boxes in results.items():
        sample = nusc.get("sample", token)
        annotations = [nusc.get("sample_annotation", t) for t in sample["anns"]]
        for box in boxes:
            distances = [
                np.linalg.norm(np.subtract(a["translation"], box["translation"]))
                for a in annotations
            ]
            annotation = annotations[int(np.argmin(distances))]
            assert min(distances) < 1e-3
            np.testing.assert_allclose(box["size"], annotation["size"], rtol=1e-5)
            turn = abs(np.dot(box["rotation"], annotation["rotation"]))
            assert turn == pytest.approx(1, abs=1e-4)
            name = category_to_detection_name(annotation["category_name"])
            assert box["detection_name"] == name
            velocity = np.nan_to_num(nusc.box_velocity(annotation["token"])[:2])
            np.testing.assert_allclose(box["velocity"], velocity, atol=0.02)
            compared += 1
    assert compared > 50
    config = config_factory("detection_cvpr_2019")
    again = DetectionEval(
        nusc, config, str(tmp_path / "results_nusc.json"), "mini_val", str(tmp_path), verbose=False
    )
    summary = json.loads((tmp_path / "metrics_summary.json").read_text())
    assert again.evaluate()[0].mean_ap == summary["mAP"]


def data_samples(predictions) -> list[Det3DDataSample]:
    samples = []
    for p in predictions:
        sample = Det3DDataSample(metainfo={"token": ["frame before", p.token]})
        boxes = LiDARInstance3DBoxes(torch.from_numpy(p.boxes), box_dim=9)
        sample.pred_instances_3d = InstanceData(
            bboxes_3d=boxes,
            scores_3d=torch.from_numpy(p.scores),
            labels_3d=torch.from_numpy(p.labels),
        )
        samples.append(sample)
    return samples


def test_evaluator_of_mmengine_gives_the_same(prepared, tmp_path):
    predictions = perfect(prepared, "val")
    metric = NuScenesDetectionMetric(str(prepared), out_dir=str(tmp_path / "new"), prefix="val")
    evaluator = Evaluator(metric)
    for sample in data_samples(predictions):
        evaluator.process(data_samples=[sample], data_batch=None)
    metrics = evaluator.evaluate(len(predictions))
    expected = evaluate_predictions(predictions, prepared, "val")
    assert metrics == {f"val/{key}": value for key, value in expected.items()}
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["metrics_summary.json", "results_nusc.json"]
    assert not metric.results


def test_classes_in_another_order(prepared):
    classes = CLASSES[::-1]
    metrics = evaluate_predictions(perfect(prepared, "val", classes), prepared, "val", classes)
    assert metrics["mAP"] == pytest.approx(1, abs=1e-6)


def test_wrong_sets_of_key_frames_are_counted_and_named(prepared):
    """K44"""
    good = perfect(prepared, "val")
    first, second = good[0].token, good[1].token
    other = load_infos(prepared, "train")["data_list"][0]["token"]
    cases = [
        (good[1:], f"1 missing .first {first}.$"),
        ([*good, good[1]], f"1 there twice .first {second}.$"),
        ([*good, empty(other)], f"1 unknown .first {other}.$"),
        (perfect(prepared, "train"), f"6 missing .first {first}., 6 unknown .first {other}.$"),
        ([], "6 missing"),
    ]
    for predictions, problem in cases:
        with pytest.raises(ValueError, match=f"split's 6 key frames, each once: {problem}"):
            evaluate_predictions(predictions, prepared, "val")


def test_one_empty_key_frame_is_kept(prepared, tmp_path):
    """K44"""
    first, *rest = perfect(prepared, "val")
    metrics = evaluate_predictions([empty(first.token), *rest], prepared, "val", out_dir=tmp_path)
    assert 0.5 < metrics["mAP"] < 1
    results = json.loads((tmp_path / "results_nusc.json").read_text())["results"]
    assert results[first.token] == [] and len(results) == 6


def test_number_that_is_not_finite_is_named_with_its_key_frame(prepared):
    """K50"""
    first, *rest = perfect(prepared, "val")
    boxes = first.boxes.copy()
    boxes[2, 3] = np.inf
    with pytest.raises(ValueError, match=f"key frame {first.token}: 1 of {len(boxes)} boxes"):
        evaluate_predictions([replace(first, boxes=boxes), *rest], prepared, "val")


def test_split_without_ground_truth_scores_zero(tmp_path):
    infos = write_prepared(tmp_path, {"A": [[], [instance("animal")]]}, split="val")
    metrics = evaluate_predictions([empty(info["token"]) for info in infos], tmp_path, "val")
    assert metrics["mAP"] == metrics["NDS"] == 0


def test_boxes_beyond_the_range_of_their_class_are_left_out(tmp_path):
    (info,) = write_prepared(tmp_path, {"A": [[]]})
    config = config_factory("detection_cvpr_2019")
    # The lidar is 1 m ahead of the ego's centre, turned by a quarter.
    rows = np.zeros((4, 9), dtype=np.float32)
    rows[:, 1] = [48.9, 49.1, 28.9, 29.1]
    rows[:, 3:6] = 1
    labels = np.array([CLASSES.index(n) for n in ("car", "car", "barrier", "barrier")])
    scores = np.array([0.1, 0.9, 0.3, 0.9])
    found = submission_boxes(Prediction("t", rows, scores, labels), info, CLASSES, config)
    assert [(b["detection_name"], b["detection_score"]) for b in found] == [
        ("barrier", 0.3),
        ("car", 0.1),
    ]


def test_attributes_follow_class_and_speed(tmp_path):
    (info,) = write_prepared(tmp_path, {"A": [[]]})
    expected = {
        "car": ("vehicle.parked", "vehicle.moving"),
        "truck": ("vehicle.parked", "vehicle.moving"),
        "construction_vehicle": ("vehicle.parked", "vehicle.moving"),
        "bus": ("vehicle.stopped", "vehicle.moving"),
        "trailer": ("vehicle.parked", "vehicle.moving"),
        "barrier": ("", ""),
        "motorcycle": ("cycle.without_rider", "cycle.with_rider"),
        "bicycle": ("cycle.without_rider", "cycle.with_rider"),
        "pedestrian": ("pedestrian.standing", "pedestrian.moving"),
        "traffic_cone": ("", ""),
    }
    config = config_factory("detection_cvpr_2019")
    rows = np.zeros((20, 9), dtype=np.float32)
    rows[:, 3:6] = 1
    rows[:10, 7:] = (0.15, 0.1)  # 0.18 m/s
    rows[10:, 7:] = (-0.15, 0.15)  # 0.21 m/s
    labels = np.tile(np.arange(10), 2)
    prediction = Prediction("t", rows, np.linspace(1, 0.5, 20), labels)
    found = submission_boxes(prediction, info, CLASSES, config)
    for name, slow, fast in zip(CLASSES, found[:10], found[10:]):
        assert (slow["attribute_name"], fast["attribute_name"]) == expected[name]


def test_at_most_500_boxes_of_a_key_frame_the_best_ones(tmp_path):
    (info,) = write_prepared(tmp_path, {"A": [[]]})
    rows = np.ones((700, 9), dtype=np.float32)
    scores = np.random.default_rng(0).random(700)
    prediction = Prediction("t", rows, scores, np.zeros(700, dtype=np.int64))
    config = config_factory("detection_cvpr_2019")
    found = [b["detection_score"] for b in submission_boxes(prediction, info, CLASSES, config)]
    assert found == sorted(scores, reverse=True)[:500]


FRAME = [
    instance("car"),
    instance("car", (-20.0, 5.0, 0.0), velocity=(math.nan, math.nan)),
    instance("barrier", (5.0, 25.0, 0.0)),
    instance("traffic_cone", (5.0, -15.0, 0.0)),
    instance("traffic_cone", (6.0, -15.0, 0.0), points=0),  # not counted
    instance("pedestrian", (0.0, 45.0, 0.0)),  # not counted: beyond 40 m
]


def test_key_frame_means_are_over_the_classes_present(tmp_path):
    write_key_frame(tmp_path, FRAME)
    metrics = evaluate_predictions(perfect(tmp_path, "val"), tmp_path, out_dir=tmp_path / "out")
    present = {key.removeprefix("AP/") for key in metrics if key.startswith("AP/")}
    assert present == {"car", "barrier", "traffic_cone"}
    assert metrics["mAP"] == pytest.approx(1)
    assert max(metrics[error] for error in ERRORS) < 1e-3
    # Attributes are not in such a file, and count as wrong.
    assert "mAAE" not in metrics and metrics["NDS"] == pytest.approx(0.9, abs=1e-3)
    text = (tmp_path / "out" / "metrics_summary.json").read_text()
    assert "NaN" not in text and json.loads(text) == metrics


def test_key_frame_errors_leave_out_what_cones_and_barriers_do_not_have(tmp_path):
    write_key_frame(tmp_path, FRAME)
    (prediction,) = perfect(tmp_path, "val")
    boxes = prediction.boxes.copy()
    is_cone = prediction.labels == CLASSES.index("traffic_cone")
    is_barrier = prediction.labels == CLASSES.index("barrier")
    boxes[is_cone, 6] += 1.0
    boxes[is_cone | is_barrier, 7] += 3.0
    metrics = evaluate_predictions([replace(prediction, boxes=boxes)], tmp_path)
    assert metrics["mAOE"] < 1e-3 and metrics["mAVE"] < 1e-3


def test_key_frame_misses_and_false_alarms_count(tmp_path):
    write_key_frame(tmp_path, FRAME)
    (prediction,) = perfect(tmp_path, "val")
    barrier = CLASSES.index("barrier")
    kept = prediction.labels != barrier
    rest = Prediction(
        "frame", *(getattr(prediction, f)[kept] for f in ("boxes", "scores", "labels"))
    )
    metrics = evaluate_predictions([rest], tmp_path)
    assert metrics["AP/barrier"] == 0 and metrics["mAP"] == pytest.approx(2 / 3)
    metrics = evaluate_predictions([empty("frame")], tmp_path)
    assert metrics["mAP"] == 0
    moved = replace(prediction, boxes=prediction.boxes + np.float32([9, 9, 0, 0, 0, 0, 0, 0, 0]))
    assert evaluate_predictions([moved], tmp_path)["mAP"] == 0


def test_key_frame_without_boxes_scores_zero(tmp_path):
    write_key_frame(tmp_path, [])
    assert evaluate_predictions([empty("frame")], tmp_path)["mAP"] == 0


def rank_evaluates(rank: int, world_size: int, port: int, folder: str, root: str) -> None:
    """Rank 0 has the predictions, rank 1 none; then one is missing."""
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size
    )
    predictions = perfect(Path(root), "val") if rank == 0 else []
    metric = NuScenesDetectionMetric(root)
    metric.process(None, data_samples(predictions))
    metrics = metric.evaluate(6)
    metric.process(None, data_samples(predictions[1:]))
    try:
        metric.evaluate(6)
        error = ""
    except ValueError as problem:
        error = str(problem)
    Path(folder, f"{rank}.json").write_text(json.dumps([metrics, error]))
    dist.destroy_process_group()


@pytest.mark.slow
def test_processes_gather_their_shares_and_fail_together(prepared, tmp_path):
    """K44, K52"""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True)
    port = store.port
    del store
    mp.spawn(rank_evaluates, (2, port, str(tmp_path), str(prepared)), nprocs=2)
    expected = evaluate_predictions(perfect(prepared, "val"), prepared, "val")
    for rank in range(2):
        metrics, error = json.loads((tmp_path / f"{rank}.json").read_text())
        assert metrics == expected
        assert "1 missing" in error
