"""The boxes that pictures show, and their corners."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autodrive.data.classes import CLASSES

# Corners 0-3 are the bottom, 4-7 the top; 0 and 1 are the front. Pairs of corners that share an edge:
EDGES = (
    *((0, 1), (1, 2), (2, 3), (3, 0)),
    *((4, 5), (5, 6), (6, 7), (7, 4)),
    *((0, 4), (1, 5), (2, 6), (3, 7)),
)
_SIGNS = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) / 2


@dataclass(frozen=True)
class SceneBoxes:
    """Boxes of one key frame: lidar boxes (n, 9) as in `geometry.boxes`, class names, and scores or None."""

    boxes: np.ndarray
    names: Sequence[str]
    scores: np.ndarray | None = None

    @classmethod
    def of(
        cls, instances, min_score: float = 0.0, classes: Sequence[str] = CLASSES
    ) -> "SceneBoxes":
        """From ground truth or predictions (`gt_instances_3d`, `pred_instances_3d`) of a data sample."""
        boxes = instances.bboxes_3d.tensor.float().cpu().numpy()
        labels = instances.labels_3d.cpu().numpy()
        if "scores_3d" not in instances:
            return cls(boxes, [classes[i] for i in labels])
        scores = instances.scores_3d.float().cpu().numpy()
        keep = scores >= min_score
        return cls(boxes[keep], [classes[i] for i in labels[keep]], scores[keep])


def corners(boxes: np.ndarray) -> np.ndarray:
    """Lidar boxes (n, 9) → (n, 8, 3) corners in the lidar frame, in the order of `EDGES`."""
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 9)
    x, y, bottom, length, width, height, yaw = boxes[:, :7].T
    along = _SIGNS[:, 0] * length[:, None]
    across = _SIGNS[:, 1] * width[:, None]
    cos, sin = np.cos(yaw)[:, None], np.sin(yaw)[:, None]
    px = x[:, None] + cos * along - sin * across
    py = y[:, None] + sin * along + cos * across
    floor = np.stack([px, py, np.broadcast_to(bottom[:, None], px.shape)], axis=-1)
    roof = floor + np.stack([0 * height, 0 * height, height], axis=-1)[:, None]
    return np.concatenate([floor, roof], axis=1)
