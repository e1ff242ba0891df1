"""The official nuScenes detection metrics, from predictions in the lidar frame."""

import math
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dist import all_gather_object, broadcast_object_list, is_main_process
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS
from nuscenes import NuScenes
from nuscenes.eval.common.config import config_factory
from nuscenes.eval.common.data_classes import EvalBoxes
from nuscenes.eval.common.utils import center_distance
from nuscenes.eval.detection.algo import accumulate, calc_ap, calc_tp
from nuscenes.eval.detection.constants import TP_METRICS
from nuscenes.eval.detection.data_classes import DetectionBox, DetectionConfig, DetectionMetrics
from nuscenes.eval.detection.evaluate import DetectionEval

from autodrive.data.classes import CLASSES, attribute_name
from autodrive.data.files import write_json
from autodrive.data.info import files_root, load_infos
from autodrive.geometry.boxes import NuScenesBoxes, lidar_to_nuscenes_boxes

MAX_BOXES_PER_SAMPLE = 500
ERROR_NAMES = {
    "trans_err": "mATE",
    "scale_err": "mASE",
    "orient_err": "mAOE",
    "vel_err": "mAVE",
    "attr_err": "mAAE",
}
# Cones have no front and do not move, barriers do not move: the official evaluation leaves these out.
UNDEFINED_ERRORS = {
    "traffic_cone": ("attr_err", "vel_err", "orient_err"),
    "barrier": ("attr_err", "vel_err"),
}


@dataclass(frozen=True)
class Prediction:
    """Boxes of one key frame: token, lidar boxes (n, 9), scores (n,), labels (n,) in the order of the classes."""

    token: str
    boxes: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


@METRICS.register_module()
class NuScenesDetectionMetric(BaseMetric):
    """mAP, NDS and the errors behind it, by the official devkit, for exactly the key frames of a split.

    A key-frame folder has no tables for the devkit to read: there its matching and averaging run on the boxes of the
    info file, and means are over the classes that are present. Without attributes in that file there is no mAAE, and
    NDS counts it as 1, so that perfect predictions get 0.9.

    Args:
        data_root: prepared nuScenes folder, or a key-frame folder.
        split: "train" or "val".
        classes: in the model's order.
        out_dir: where `results_nusc.json` and `metrics_summary.json` go; nowhere if not given.

    Results of `evaluate`: "mAP", "NDS", "mATE", "mASE", "mAOE", "mAVE", "mAAE" where they are defined, and
    "AP/<class>".
    """

    def __init__(
        self,
        data_root: str,
        split: str = "val",
        classes: Sequence[str] = CLASSES,
        out_dir: str | None = None,
        collect_device: str = "cpu",
        prefix: str | None = None,
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.data_root = Path(data_root)
        self.split = split
        self.classes = tuple(classes)
        self.out_dir = Path(out_dir) if out_dir else None

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        self.results.extend(prediction_of(sample) for sample in data_samples)

    def evaluate(self, size: int) -> dict[str, float]:
        """Gathers the predictions of all processes, which may hold different numbers of them."""
        own, self.results = self.results, []
        parts = all_gather_object(own)
        outcome: list[Any] = [None]
        if is_main_process():
            try:
                outcome = [self.compute_metrics([p for part in parts for p in part])]
            except Exception as error:  # all processes must stop, not one alone
                outcome = [error]
        broadcast_object_list(outcome)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        prefix = f"{self.prefix}/" if self.prefix else ""
        return {f"{prefix}{key}": value for key, value in outcome[0].items()}

    def compute_metrics(self, results: list[Prediction]) -> dict[str, float]:
        return evaluate_predictions(results, self.data_root, self.split, self.classes, self.out_dir)


def prediction_of(sample: Any) -> Prediction:
    """From a `Det3DDataSample` with `pred_instances_3d`, or the dict that mmengine's evaluator makes of it."""
    sample = sample if isinstance(sample, dict) else sample.to_dict()
    found = sample["pred_instances_3d"]
    found = found if isinstance(found, dict) else found.to_dict()
    return Prediction(
        sample["token"][-1],
        found["bboxes_3d"].tensor.float().cpu().numpy(),
        found["scores_3d"].float().cpu().numpy(),
        found["labels_3d"].cpu().numpy(),
    )


def evaluate_predictions(
    predictions: Sequence[Prediction],
    data_root: str | Path,
    split: str = "val",
    classes: Sequence[str] = CLASSES,
    out_dir: str | Path | None = None,
) -> dict[str, float]:
    """Metrics of predictions for all key frames of a split; see `NuScenesDetectionMetric`.

    Raises:
        ValueError: naming counts and tokens, if a key frame is missing, unknown or there twice; naming the token, if
            a number is not finite.
    """
    infos = load_infos(data_root, split)
    samples = {info["token"]: info for info in infos["data_list"]}
    check_tokens([p.token for p in predictions], samples)
    config = config_factory("detection_cvpr_2019")
    submission = {
        "meta": {
            "use_camera": True,
            "use_lidar": False,
            "use_radar": False,
            "use_map": False,
            "use_external": False,
        },
        "results": {
            p.token: submission_boxes(p, samples[p.token], classes, config) for p in predictions
        },
    }
    version = infos["metainfo"]["version"]
    if version == "key-frame":
        metrics = _evaluate_key_frame(submission["results"], infos, config)
    elif not _has_ground_truth(infos, config):
        metrics = _averages(EvalBoxes(), EvalBoxes(), config, config.class_names)
    else:
        root = files_root(data_root, infos)
        eval_set = infos["metainfo"]["eval_set"]
        metrics = _evaluate_officially(submission, root, version, eval_set, config)
    if out_dir:
        write_json(Path(out_dir) / "results_nusc.json", submission)
        write_json(Path(out_dir) / "metrics_summary.json", metrics, indent=1)
    return metrics


def check_tokens(found: Sequence[str], expected: Collection[str]) -> None:
    """ValueError unless the tokens found are those expected, each once."""
    counts, known = Counter(found), set(expected)
    wrong = {
        "missing": [token for token in expected if token not in counts],
        "unknown": [token for token in counts if token not in known],
        "there twice": [token for token, count in counts.items() if count > 1],
    }
    problems = [f"{len(t)} {what} (first {t[0]})" for what, t in wrong.items() if t]
    if problems:
        raise ValueError(
            f"predictions must be of the split's {len(expected)} key frames, each once: "
            + ", ".join(problems)
        )


def submission_boxes(
    prediction: Prediction, info: dict, classes: Sequence[str], config: DetectionConfig
) -> list[dict]:
    """Predictions of a key frame as the nuScenes results format wants them, without those out of range."""
    finite = np.isfinite(prediction.boxes).all(axis=-1) & np.isfinite(prediction.scores)
    if not finite.all():
        raise ValueError(
            f"predictions of key frame {prediction.token}: {np.sum(~finite)} of {len(finite)} boxes or scores are not "
            "finite"
        )
    lidar2ego = np.asarray(info["lidar_points"]["lidar2ego"], dtype=np.float64)
    ego2global = np.asarray(info["ego2global"], dtype=np.float64)
    distance = _ego_distance(prediction.boxes, lidar2ego)
    names = [classes[label] for label in prediction.labels]
    in_range = np.array([d <= config.class_range[n] for d, n in zip(distance, names)], dtype=bool)
    order = np.argsort(-prediction.scores, kind="stable")
    keep = [i for i in order if in_range[i]][:MAX_BOXES_PER_SAMPLE]
    boxes = lidar_to_nuscenes_boxes(prediction.boxes[keep], ego2global @ lidar2ego)
    return [
        _box_dict(prediction.token, boxes, row, names[i], float(prediction.scores[i]))
        for row, i in enumerate(keep)
    ]


def _ego_distance(boxes: np.ndarray, lidar2ego: np.ndarray) -> np.ndarray:
    """Horizontal distance of the centres from the ego, m."""
    return np.linalg.norm(lidar_to_nuscenes_boxes(boxes, lidar2ego).center[:, :2], axis=-1)


def _box_dict(token: str, boxes: NuScenesBoxes, row: int, name: str, score: float) -> dict:
    velocity = boxes.velocity[row]
    return {
        "sample_token": token,
        "translation": boxes.center[row].tolist(),
        "size": boxes.size[row].tolist(),
        "rotation": boxes.rotation[row].tolist(),
        "velocity": velocity.tolist(),
        "detection_name": name,
        "detection_score": score,
        "attribute_name": attribute_name(name, float(np.linalg.norm(velocity))),
    }


def _has_ground_truth(infos: dict, config: DetectionConfig) -> bool:
    names = {number: name for name, number in infos["metainfo"]["categories"].items()}
    return any(
        names.get(instance["bbox_label_3d"]) in config.class_range
        for info in infos["data_list"]
        for instance in info["instances"]
    )


def _evaluate_officially(
    submission: dict, data_root: Path, version: str, eval_set: str, config: DetectionConfig
) -> dict[str, float]:
    results = submission["results"]
    if not any(results.values()):
        # The devkit fails on a submission without any box. One that is out of range counts as none.
        token = next(iter(results))
        far = NuScenesBoxes(np.full((1, 3), 1e6), np.ones((1, 3)), np.eye(1, 4), np.zeros((1, 2)))
        box = _box_dict(token, far, 0, CLASSES[0], 0.0)
        submission = {**submission, "results": {**results, token: [box]}}
    nusc = NuScenes(version=version, dataroot=str(data_root), verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results_nusc.json")
        write_json(path, submission)
        evaluation = DetectionEval(nusc, config, path, eval_set, folder, verbose=False)
        metrics, _ = evaluation.evaluate()
    return _summary(metrics)


def _evaluate_key_frame(
    results: dict[str, list[dict]], infos: dict, config: DetectionConfig
) -> dict[str, float]:
    (info,) = infos["data_list"]
    token = info["token"]
    truth, found = EvalBoxes(), EvalBoxes()
    truth.add_boxes(token, ground_truth(info, infos["metainfo"]["categories"], config))
    found.add_boxes(token, [DetectionBox(**box) for box in results[token]])
    present = {box.detection_name for box in truth.all} or set(config.class_names)
    attributes = any(box.attribute_name for box in truth.all)
    return _averages(truth, found, config, present, () if attributes else ("attr_err",))


def _averages(
    truth: EvalBoxes,
    found: EvalBoxes,
    config: DetectionConfig,
    class_names: Collection[str],
    unknown_errors: Collection[str] = (),
) -> dict[str, float]:
    """The official averages over some of the classes, and without errors that the ground truth cannot tell."""
    metrics = DetectionMetrics(config)
    for name in config.class_names:
        undefined = {*unknown_errors, *UNDEFINED_ERRORS.get(name, ())}
        for error in TP_METRICS:
            metrics.add_label_tp(name, error, float("nan"))
        for threshold in config.dist_ths if name in class_names else ():
            data = accumulate(truth, found, name, center_distance, threshold)
            ap = calc_ap(data, config.min_recall, config.min_precision)
            metrics.add_label_ap(name, threshold, ap)
            if threshold == config.dist_th_tp:
                for error in set(TP_METRICS) - undefined:
                    metrics.add_label_tp(name, error, calc_tp(data, config.min_recall, error))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice")
        return _summary(metrics)


def ground_truth(
    info: dict, categories: dict[str, int], config: DetectionConfig
) -> list[DetectionBox]:
    """The boxes of an info that the official evaluation counts: with a point in them, within their class's range."""
    names = {number: name for name, number in categories.items()}
    lidar2ego = np.asarray(info["lidar_points"]["lidar2ego"], dtype=np.float64)
    counted, rows = [], []
    for instance in info["instances"]:
        name = names.get(instance["bbox_label_3d"])
        if name not in config.class_range:
            continue
        x, y, z, length, width, height, yaw = instance["bbox_3d"]
        row = [x, y, z - height / 2, length, width, height, yaw, *instance["velocity"][:2]]
        points = instance["num_lidar_pts"] + instance["num_radar_pts"]
        distance = _ego_distance(np.array([row]), lidar2ego)[0]
        if points > 0 and distance < config.class_range[name]:
            counted.append((name, points, *instance.get("attributes", [])[:1]))
            rows.append(row)
    ego2global = np.asarray(info["ego2global"], dtype=np.float64)
    boxes = lidar_to_nuscenes_boxes(np.array(rows).reshape(-1, 9), ego2global @ lidar2ego)
    return [
        DetectionBox(
            sample_token=info["token"],
            translation=tuple(boxes.center[i]),
            size=tuple(boxes.size[i]),
            rotation=tuple(boxes.rotation[i]),
            velocity=tuple(boxes.velocity[i]),
            num_pts=int(points),
            detection_name=name,
            attribute_name=attribute[0] if attribute else "",
        )
        for i, (name, points, *attribute) in enumerate(counted)
    ]


def _summary(metrics: DetectionMetrics) -> dict[str, float]:
    summary = {"mAP": float(metrics.mean_ap), "NDS": float(metrics.nd_score)}
    for error, value in metrics.tp_errors.items():
        if not math.isnan(value):
            summary[ERROR_NAMES[error]] = float(value)
    for name, ap in metrics.mean_dist_aps.items():
        summary[f"AP/{name}"] = float(ap)
    return summary
