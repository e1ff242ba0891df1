"""BEVFormer as an mmengine model: images in, losses or boxes out, with memory over time."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from mmdet3d.structures import Det3DDataSample
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from autodrive.data.can_bus import CAN_BUS_SIZE, HEADING_DEGREES, POSITION

from .grid_mask import GridMask
from .head import BEVFormerHead, Detections


@dataclass(frozen=True)
class FrameGeometry:
    """One frame of a batch, on the CPU: lidar2img (B, N_cam, 4, 4) float32, can_bus (B, 18)."""

    lidar2img: Tensor
    can_bus: np.ndarray


@dataclass(frozen=True)
class SceneMemory:
    """What a test stream remembers of a scene: the last BEV (L, C), from where, and when."""

    bev: Tensor
    position: np.ndarray
    yaw_degrees: float
    timestamp: float


class BEVFormer(BaseModel):
    """Detector with BEV memory.

    A batch is `inputs["img"]`, a list of B tensors (T, N_cam, 3, h, w), and `data_samples`, a list
    of B `Det3DDataSample` whose metainfo has, per frame, `lidar2img` (T, N_cam, 4, 4), `can_bus`
    (T, 18), `prev_bev_exists` (T,), `scene_token`, `token` and `timestamp` (lists of length T); the
    last frame is the current one. h and w include the padding, and `lidar2img` is for those images.

    Training: the frames before the last run in eval mode without gradient, to give the last one its
    history. `can_bus` is relative to the previous frame of the queue.

    Prediction: only the last frame is used, and frames of a scene must come in time order. Memory
    is kept per scene, for the scenes of the last batch; `can_bus` is absolute and made relative
    here. `eval()` and `train()` forget everything, so every evaluation starts fresh.

    Args:
        img_backbone, img_neck, pts_bbox_head: configs of the parts.
        use_grid_mask: GridMask on the current frame in training.
    """

    def __init__(
        self,
        img_backbone: dict,
        img_neck: dict,
        pts_bbox_head: dict,
        use_grid_mask: bool = True,
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(data_preprocessor=data_preprocessor, init_cfg=init_cfg)
        self.img_backbone = MODELS.build(img_backbone)
        self.img_neck = MODELS.build(img_neck)
        self.pts_bbox_head: BEVFormerHead = MODELS.build(pts_bbox_head)
        self.grid_mask = GridMask() if use_grid_mask else None
        self._memory: dict[str, SceneMemory] = {}

    def train(self, mode: bool = True) -> "BEVFormer":
        self._memory = {}
        return super().train(mode)

    def forward(
        self,
        inputs: dict[str, list[Tensor]],
        data_samples: list[Det3DDataSample],
        mode: str = "tensor",
    ) -> dict[str, Tensor] | list[Det3DDataSample] | Detections:
        """ "loss": losses; "predict": samples with `pred_instances_3d`; "tensor": Detections."""
        images = stack_images(inputs["img"])
        check_metainfo(data_samples, images.shape)
        if mode == "loss":
            return self.loss(images, data_samples)
        if mode == "predict":
            return self.predict(images, data_samples)
        if mode == "tensor":
            return self.detect_with_history(images, data_samples)
        raise ValueError(f'mode must be "loss", "predict" or "tensor", got {mode!r}')

    # ------------------------------------------------------------------ one frame

    def extract_features(self, images: Tensor) -> list[Tensor]:
        """images (B, N_cam, 3, h, w) → per level (B, N_cam, C, h_l, w_l)."""
        B, num_cams = images.shape[:2]
        features = self.img_neck(self.img_backbone(images.flatten(0, 1)))
        return [level.unflatten(0, (B, num_cams)) for level in features]

    def encode(
        self,
        features: list[Tensor],
        geometry: FrameGeometry,
        img_shape: tuple[int, int],
        prev_bev: Tensor | None,
        has_prev: np.ndarray | None,
    ) -> Tensor:
        return self.pts_bbox_head.encode(
            features, geometry.lidar2img, img_shape, geometry.can_bus, prev_bev, has_prev
        )

    # ------------------------------------------------------------------ training

    def loss(self, images: Tensor, data_samples: list[Det3DDataSample]) -> dict[str, Tensor]:
        """images (B, T, N_cam, 3, h, w) → losses of the last frame."""
        detections = self.detect_with_history(images, data_samples)
        truth = [sample.gt_instances_3d for sample in data_samples]
        return self.pts_bbox_head.loss(
            detections,
            [t.labels_3d for t in truth],
            [t.bboxes_3d.tensor for t in truth],
            [sample.token[-1] for sample in data_samples],
        )

    def detect_with_history(
        self, images: Tensor, data_samples: list[Det3DDataSample]
    ) -> Detections:
        """Detections of the last frame, the frames before it being its history."""
        exists = np.array([sample.prev_bev_exists for sample in data_samples], dtype=bool)
        exists[:, 0] = False
        img_shape = tuple(images.shape[-2:])
        prev_bev = None
        if images.shape[1] > 1:
            prev_bev = self.history(images[:, :-1], data_samples, exists)
        current = images[:, -1]
        if self.grid_mask is not None:
            current = self.grid_mask(current)
        geometry = frame_geometry(data_samples, -1)
        features = self.extract_features(current)
        bev = self.encode(features, geometry, img_shape, prev_bev, exists[:, -1])
        return self.pts_bbox_head.decode(bev)

    @torch.no_grad()
    def history(
        self, images: Tensor, data_samples: list[Det3DDataSample], exists: np.ndarray
    ) -> Tensor:
        """The BEV (B, L, C) of the last of these frames, in eval mode; exists is (B, T)."""
        was_training = self.training
        self.eval()
        B, T = images.shape[:2]
        features = self.extract_features(images.flatten(0, 1))
        bev = None
        for t in range(T):
            frame = [level.unflatten(0, (B, T))[:, t] for level in features]
            geometry = frame_geometry(data_samples, t)
            bev = self.encode(frame, geometry, tuple(images.shape[-2:]), bev, exists[:, t])
        self.train(was_training)
        return bev

    # ------------------------------------------------------------------ test stream

    @torch.no_grad()
    def predict(self, images: Tensor, data_samples: list[Det3DDataSample]) -> list[Det3DDataSample]:
        """images (B, T, N_cam, 3, h, w), the last frame is used → the samples with predictions."""
        features = self.extract_features(images[:, -1])
        img_shape = tuple(images.shape[-2:])
        memory: dict[str, SceneMemory] = {}
        for members in rounds([sample.scene_token[-1] for sample in data_samples]):
            samples = [data_samples[i] for i in members]
            remembered = [self._recall(sample, memory) for sample in samples]
            geometry = frame_geometry(samples, -1)
            absolute = geometry.can_bus.copy()
            for row, past in zip(geometry.can_bus, remembered):
                row[POSITION] = 0 if past is None else row[POSITION] - past.position
                row[HEADING_DEGREES] = (
                    0 if past is None else row[HEADING_DEGREES] - past.yaw_degrees
                )
            has_prev = np.array([past is not None for past in remembered])
            prev_bev = None
            if has_prev.any():
                known = next(past.bev for past in remembered if past is not None)
                prev_bev = torch.stack(
                    [torch.zeros_like(known) if past is None else past.bev for past in remembered]
                )
            frame = [level[members] for level in features]
            bev = self.encode(frame, geometry, img_shape, prev_bev, has_prev)
            for i, sample in enumerate(samples):
                memory[sample.scene_token[-1]] = SceneMemory(
                    bev[i],
                    absolute[i, POSITION],
                    absolute[i, HEADING_DEGREES],
                    sample.timestamp[-1],
                )
            predictions = self.pts_bbox_head.predict(self.pts_bbox_head.decode(bev))
            for sample, prediction in zip(samples, predictions):
                sample.pred_instances_3d = prediction
        self._memory = memory
        return data_samples

    def _recall(
        self, sample: Det3DDataSample, memory: dict[str, SceneMemory]
    ) -> SceneMemory | None:
        """The memory of the sample's scene; none if it is not older: the scene starts anew."""
        scene = sample.scene_token[-1]
        past = memory.get(scene) or self._memory.get(scene)
        return past if past is not None and past.timestamp < sample.timestamp[-1] else None


def rounds(scene_tokens: list[str]) -> Iterator[list[int]]:
    """Splits a batch so that each part has a scene at most once: later frames need earlier ones."""
    left = list(range(len(scene_tokens)))
    while left:
        first: dict[str, int] = {}
        for i in left:
            first.setdefault(scene_tokens[i], i)
        yield list(first.values())
        left = [i for i in left if i not in first.values()]


def stack_images(images: list[Tensor]) -> Tensor:
    """List of B (T, N_cam, 3, h, w) → (B, T, N_cam, 3, h, w)."""
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) != 1 or len(images[0].shape) != 5:
        raise ValueError(
            f'inputs["img"] must be tensors of one shape (T, N_cam, 3, h, w), got {sorted(shapes)}'
        )
    return torch.stack(images) if len(images) > 1 else images[0].unsqueeze(0)


def check_metainfo(data_samples: list[Det3DDataSample], shape: tuple[int, ...]) -> None:
    B, T, num_cams = shape[:3]
    if len(data_samples) != B:
        raise ValueError(f"data_samples must be as many as images, {B}, got {len(data_samples)}")
    expected = {
        "lidar2img": (T, num_cams, 4, 4),
        "can_bus": (T, CAN_BUS_SIZE),
        "prev_bev_exists": (T,),
    }
    for sample in data_samples:
        for key, wanted in expected.items():
            found = np.shape(getattr(sample, key))
            if found != wanted:
                raise ValueError(
                    f"{key} of sample {sample.token[-1]} must be {wanted}, got {found}"
                )


def frame_geometry(data_samples: list[Det3DDataSample], t: int) -> FrameGeometry:
    """Poses of frame t of every sample; new arrays."""
    lidar2img = np.stack([np.asarray(sample.lidar2img[t]) for sample in data_samples])
    can_bus = np.stack([np.array(sample.can_bus[t], dtype=np.float64) for sample in data_samples])
    return FrameGeometry(torch.from_numpy(lidar2img.astype(np.float32)), can_bus)
