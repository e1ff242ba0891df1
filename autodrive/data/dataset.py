"""Queues of key frames for training, single key frames in order of time for testing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmdet3d.structures import Det3DDataSample, LiDARInstance3DBoxes
from mmengine.dataset import BaseDataset
from mmengine.registry import DATASETS
from mmengine.structures import InstanceData

from .augmentation import UNCHANGED, SceneTransform
from .can_bus import absolute_can_bus, relative_can_bus
from .classes import CAMERAS, CLASSES
from .info import files_root, lidar2img, load_infos

MAX_TRIES = 10_000  # to find a queue with boxes
BOX_SIZE = 9  # x, y, z_bottom, l, w, h, yaw, vx, vy


@DATASETS.register_module()
class NuScenesSequenceDataset(BaseDataset):
    """Key frames with their history, from a prepared nuScenes folder or from a single key-frame folder.

    Training: item i is a queue of `queue_length` frames that ends with key frame i. Of the `queue_length` frames
    before it one is left out at random; indices before the start of the list become 0. A queue may cross the border
    of a scene: the frame behind it has no predecessor (`prev_bev_exists`). A queue with a frame without boxes is
    replaced by another (BEVFormer, section 3.5 and its training recipe).
    Testing: item i is key frame i alone, scene after scene, in order of time; its `can_bus` is absolute.

    An index may come as (seed, epoch, index), as `QueueSampler` gives it; alone, it is (0, 0, index). What is random
    depends on these numbers alone, not on workers or on what went before.

    Args:
        data_root: the folder with `autodrive_infos_<split>.pkl`, or a key-frame folder.
        split: "train" or "val".
        pipeline: transforms of one frame, see `transforms`.
        queue_length: frames of a training item, the current one included.
        test_mode: testing instead of training.
        classes: in the model's order.
        pc_range: (x0, y0, z0, x1, y1, z1) m: training boxes have their centre strictly inside in x and y.
        use_valid_flag: train with boxes that hold a lidar or radar point only.
        need_can_bus: fail at once if no key frame has CAN bus messages (single scenes may lack them); else the
            acceleration, rotation rate and velocity in `can_bus` are zeros.
        mirror: training: show half of the queues mirrored, left for right.
        max_turn_degrees: training: turn the lidar frame of a queue by up to this, either way.

    An item is dict(inputs=dict(img=(T, N_cam, 3, h, w)), data_samples=Det3DDataSample), img float32, or uint8 if the
    pipeline leaves it so. The metainfo has, per frame, `lidar2img` (T, N_cam, 4, 4), `can_bus` (T, 18),
    `prev_bev_exists` (T,), `scene_token`, `token`, `timestamp` (s); of the last frame `ego2global`, `lidar2ego`
    (4, 4), `img_path`, `ori_lidar2img` (N_cam, 4, 4) for the image files; and `img_shape` (h, w). `gt_instances_3d`
    has the boxes of the last frame.

    Raises:
        FileNotFoundError, ValueError: naming the folder or file; a missing or damaged image is named when it is read.
    """

    def __init__(
        self,
        data_root: str,
        split: str = "train",
        pipeline: Sequence[dict] = (),
        queue_length: int = 3,
        test_mode: bool = False,
        classes: Sequence[str] = CLASSES,
        pc_range: Sequence[float] = (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0),
        use_valid_flag: bool = True,
        need_can_bus: bool = False,
        mirror: bool = False,
        max_turn_degrees: float = 0.0,
    ) -> None:
        if queue_length < 1:
            raise ValueError(f"queue_length must be at least 1, got {queue_length}")
        self.mirror = mirror
        self.max_turn_degrees = max_turn_degrees
        self.split = split
        self.queue_length = queue_length
        self.classes = tuple(classes)
        self.pc_range = tuple(pc_range)
        self.use_valid_flag = use_valid_flag
        self.need_can_bus = need_can_bus
        super().__init__(
            data_root=str(data_root), data_prefix={}, pipeline=list(pipeline), test_mode=test_mode
        )

    def load_data_list(self) -> list[dict]:
        """Infos of all key frames, in order; mmengine keeps them as bytes that all workers share."""
        content = load_infos(self.data_root, self.split)
        infos = in_order(content["data_list"])
        if not infos:
            raise ValueError(f"split {self.split!r} of {self.data_root} has no key frames")
        if self.need_can_bus and not any(info["can_bus_valid"] for info in infos):
            raise ValueError(
                f"the model needs CAN bus data, and no key frame of split {self.split!r} of {self.data_root} has any: "
                "unpack the CAN bus expansion to can_bus/ in the nuScenes folder, then run autodrive data prepare again"
            )
        self._metainfo = {**content["metainfo"], "classes": self.classes}
        self.files_root = files_root(self.data_root, content)
        self.scene_tokens = [info["scene_token"] for info in infos]
        labels = {name: label for label, name in enumerate(self.classes)}
        # The class order of an info file is its own: labels go through names.
        self.label_of_category = {
            number: labels.get(name, -1) for name, number in self._metainfo["categories"].items()
        }
        return infos

    def __getitem__(self, index: int | tuple[int, int, int]) -> dict[str, Any]:
        seed, epoch, index = index if isinstance(index, tuple) else (0, 0, index)
        if not 0 <= index < len(self):
            raise IndexError(f"index must be in [0, {len(self)}), got {index}")
        rng = np.random.default_rng([seed, epoch, index])
        if self.test_mode:
            item = self._item([self.get_data_info(index)], rng)
            item["data_samples"].set_metainfo({"prev_bev_exists": np.array([self._follows(index)])})
            return item
        for _ in range(min(10 * len(self), MAX_TRIES)):
            infos = [self.get_data_info(i) for i in self._queue(index, rng)]
            if all(len(self.boxes(info)[0]) for info in infos):
                seen_from = SceneTransform.draw(rng, self.mirror, self.max_turn_degrees)
                return self._item(infos, rng, seen_from)
            index = int(rng.integers(len(self)))
        raise ValueError(
            f"{self.data_root}: no queue of {self.queue_length} key frames found in which every frame has a box of "
            f"classes {', '.join(self.classes)} within {self.pc_range}"
        )

    def _queue(self, index: int, rng: np.random.Generator) -> list[int]:
        history = np.arange(index - self.queue_length, index)
        history = np.delete(history, rng.integers(self.queue_length))
        return [*np.maximum(history, 0).tolist(), index]

    def _item(
        self,
        infos: list[dict],
        rng: np.random.Generator,
        seen_from: SceneTransform = UNCHANGED,
    ) -> dict[str, Any]:
        frames = [seen_from.frame(self.pipeline(self._frame(info, rng))) for info in infos]
        scenes = [info["scene_token"] for info in infos]
        can_bus = np.stack([absolute_pose(info, seen_from) for info in infos])
        relative, exists = relative_can_bus(can_bus, scenes)
        current = infos[-1]
        sample = Det3DDataSample(
            metainfo={
                "lidar2img": np.stack([frame["lidar2img"] for frame in frames]),
                "can_bus": can_bus if self.test_mode else relative,
                "prev_bev_exists": exists,
                "scene_token": scenes,
                "token": [info["token"] for info in infos],
                "timestamp": [info["timestamp"] for info in infos],
                "img_shape": tuple(frames[-1]["img_shape"]),
                "ego2global": np.asarray(current["ego2global"], dtype=np.float64),
                "lidar2ego": np.asarray(current["lidar_points"]["lidar2ego"], dtype=np.float64),
                "img_path": self._image_paths(current),
                "ori_lidar2img": self._projections(current),
            }
        )
        boxes, labels = self.boxes(current, seen_from)
        sample.gt_instances_3d = InstanceData(
            bboxes_3d=LiDARInstance3DBoxes(torch.from_numpy(boxes), box_dim=BOX_SIZE),
            labels_3d=torch.from_numpy(labels),
        )
        images = np.stack([np.stack(frame["img"]) for frame in frames])
        images = np.ascontiguousarray(images.transpose(0, 1, 4, 2, 3))
        if images.dtype != np.uint8:
            images = images.astype(np.float32, copy=False)
        return {"inputs": {"img": torch.from_numpy(images)}, "data_samples": sample}

    def _follows(self, index: int) -> bool:
        """Whether the key frame before this one is of the same scene."""
        return index > 0 and self.scene_tokens[index - 1] == self.scene_tokens[index]

    def _frame(self, info: dict, rng: np.random.Generator) -> dict[str, Any]:
        return {
            "img_path": self._image_paths(info),
            "lidar2img": self._projections(info),
            "rng": rng,
        }

    def _image_paths(self, info: dict) -> list[str]:
        return [str(self.files_root / info["images"][camera]["img_path"]) for camera in CAMERAS]

    def _projections(self, info: dict) -> np.ndarray:
        return np.stack([lidar2img(info["images"][camera]) for camera in CAMERAS])

    def boxes(
        self, info: dict, seen_from: SceneTransform = UNCHANGED
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ground truth of a key frame: boxes (n, 9) float32 as mmdet3d's lidar boxes, and labels (n,) int64.

        Unknown velocities become 0. In training, boxes that the model should not learn are left out.
        """
        boxes, labels = [], []
        x0, y0, _, x1, y1, _ = self.pc_range
        for instance in info["instances"]:
            label = self.label_of_category.get(instance["bbox_label_3d"], -1)
            x, y, z, length, width, height, yaw = (float(v) for v in instance["bbox_3d"])
            learned = instance["bbox_3d_isvalid"] or not self.use_valid_flag
            if label < 0 or not (learned or self.test_mode):
                continue
            velocity = np.nan_to_num(np.asarray(instance["velocity"], dtype=np.float64)[:2])
            boxes.append([x, y, z - height / 2, length, width, height, yaw, *velocity])
            labels.append(label)
        boxes = seen_from.boxes(np.array(boxes, dtype=np.float64).reshape(-1, BOX_SIZE))
        boxes, labels = boxes.astype(np.float32), np.array(labels, dtype=np.int64)
        if self.test_mode:
            return boxes, labels
        x, y = boxes[:, 0], boxes[:, 1]
        inside = (x0 < x) & (x < x1) & (y0 < y) & (y < y1)
        return boxes[inside], labels[inside]


def in_order(infos: Sequence[dict]) -> list[dict]:
    """Key frames scene after scene: scenes by their first time, frames by their time."""
    start: dict[str, float] = {}
    for info in infos:
        scene, time = info["scene_token"], info["timestamp"]
        start[scene] = min(start.get(scene, time), time)
    return sorted(infos, key=lambda i: (start[i["scene_token"]], i["scene_token"], i["timestamp"]))


def absolute_pose(info: dict, seen_from: SceneTransform = UNCHANGED) -> np.ndarray:
    """The can_bus vector (18,) of a key frame, see `can_bus`."""
    translation = np.asarray(info["ego2global"], dtype=np.float64)[:3, 3]
    pose = seen_from.pose(translation, info["ego2global_rotation"])
    return absolute_can_bus(seen_from.can_bus(info["can_bus"]), *pose)
