"""Training queues and test streams."""

import pickle

import numpy as np
import pytest
import torch
from mmengine.dataset import pseudo_collate
from torch.utils.data import DataLoader

from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.data.dataset import NuScenesSequenceDataset
from autodrive.data.sampler import QueueSampler
from autodrive.data.transforms import (
    LoadMultiViewImages,
    NormalizeMultiView,
    PadMultiView,
    PhotometricDistortionMultiView,
)
from autodrive.metrics import NuScenesDetectionMetric
from tests.autodrive.small_data import instance, write_prepared

LOAD = [dict(type=LoadMultiViewImages)]
RANDOM = [*LOAD, dict(type=PhotometricDistortionMultiView)]
CAR = [instance()]


@pytest.fixture
def root(tmp_path):
    """Two scenes, frames 0-4 and 5-7."""
    write_prepared(tmp_path, {"A": [CAR] * 5, "B": [CAR] * 3})
    return tmp_path


def dataset_of(root, pipeline=LOAD, **options):
    return NuScenesSequenceDataset(str(root), pipeline=pipeline, **options)


def numbers(item) -> list[int]:
    return [int(token.removeprefix("sample ")) for token in item["data_samples"].token]


def test_queue_leaves_out_one_of_the_frames_before_the_current_one(root):
    dataset = dataset_of(root, queue_length=3)
    seen = {tuple(numbers(dataset[(0, epoch, 4)])) for epoch in range(40)}
    assert seen == {(1, 2, 4), (1, 3, 4), (2, 3, 4)}


def test_queue_of_one_is_the_frame_alone(root):
    assert numbers(dataset_of(root, queue_length=1)[6]) == [6]


def test_history_before_the_first_frame_is_the_first_frame(root):
    dataset = dataset_of(root, queue_length=4)
    for epoch in range(10):
        assert numbers(dataset[(0, epoch, 0)]) == [0, 0, 0, 0]
        assert numbers(dataset[(0, epoch, 1)]) == [0, 0, 0, 1]


def test_queue_across_scenes_has_no_previous_frame_there(root):
    dataset = dataset_of(root, queue_length=3)
    seen = set()
    for epoch in range(40):
        item = dataset[(0, epoch, 6)]
        sample = item["data_samples"]
        seen.add(tuple(numbers(item)))
        assert sample.scene_token == ["A" if n < 5 else "B" for n in numbers(item)]
        for t, (previous, number) in enumerate(zip([None, *numbers(item)], numbers(item))):
            follows = previous is not None and (previous < 5) == (number < 5)
            assert sample.prev_bev_exists[t] == follows
            # Ten metres and a degree a frame, also when one was left out.
            gap = number - previous if follows else 0
            np.testing.assert_allclose(sample.can_bus[t, 0], 10 * gap, atol=1e-9)
            np.testing.assert_allclose(sample.can_bus[t, 17], gap, atol=1e-9)
            np.testing.assert_allclose(sample.can_bus[t, 16], np.radians(number))
            np.testing.assert_allclose(sample.can_bus[t, 7], number)
    assert seen == {(3, 4, 6), (3, 5, 6), (4, 5, 6)}


def test_item_has_everything_in_its_shape(root):
    item = dataset_of(root, queue_length=2, test_mode=False)[3]
    images = item["inputs"]["img"]
    assert images.shape == (2, 6, 3, 18, 32) and images.dtype == torch.uint8
    sample = item["data_samples"]
    assert sample.lidar2img.shape == (2, 6, 4, 4) and sample.lidar2img.dtype == np.float64
    assert sample.can_bus.shape == (2, 18) and sample.can_bus.dtype == np.float64
    assert sample.prev_bev_exists.shape == (2,) and sample.prev_bev_exists.dtype == bool
    assert len(sample.timestamp) == len(sample.token) == len(sample.scene_token) == 2
    assert sample.img_shape == (18, 32)
    assert sample.ego2global.shape == sample.lidar2ego.shape == (4, 4)
    assert sample.ori_lidar2img.shape == (6, 4, 4)
    assert [path.split("/")[-2:] for path in sample.img_path] == [[c, "3.jpg"] for c in CAMERAS]
    assert sample.gt_instances_3d.bboxes_3d.tensor.shape == (1, 9)
    assert sample.gt_instances_3d.labels_3d.dtype == torch.int64


def test_normalised_images_are_float32_and_scaled_ones_have_their_own_projection(root):
    pipeline = [
        dict(type=LoadMultiViewImages, width=16),
        dict(type=NormalizeMultiView, mean=(1, 2, 3), std=(4, 5, 6), to_rgb=True),
        dict(type=PadMultiView, divisor=32),
    ]
    item = dataset_of(root, pipeline)[0]
    assert item["inputs"]["img"].dtype == torch.float32
    sample = item["data_samples"]
    assert sample.img_shape == (32, 32)
    half = np.diag([0.5, 0.5, 1, 1])
    np.testing.assert_allclose(sample.lidar2img[-1], half @ sample.ori_lidar2img)


def test_boxes_are_the_lidar_boxes_of_mmdet3d(root):
    boxes, labels = dataset_of(root).boxes({"instances": [instance(xyz=(7, -8, 1), yaw=-2.5)]})
    np.testing.assert_allclose(boxes, [[7, -8, 0.25, 4, 2, 1.5, -2.5, 1, 0]], rtol=1e-6)
    assert labels.tolist() == [CLASSES.index("car")]


def test_training_leaves_out_boxes_without_points_out_of_range_or_of_no_class(root):
    wanted = instance("bus", (51.1, -51.1, 30.0))
    others = [
        instance("bus", points=0),
        instance("bus", (51.2, 0, 0)),
        instance("bus", (0, -51.2, 0)),
        instance("animal"),
    ]
    info = {"instances": [*others, wanted]}
    boxes, labels = dataset_of(root).boxes(info)
    assert boxes[:, :2].tolist() == [[np.float32(51.1), np.float32(-51.1)]]
    assert labels.tolist() == [CLASSES.index("bus")]
    assert len(dataset_of(root, use_valid_flag=False).boxes(info)[0]) == 2
    assert len(dataset_of(root, test_mode=True).boxes(info)[0]) == 4


def test_labels_go_through_names(tmp_path):
    categories = CLASSES[::-1]
    boxes = [instance(name, categories=categories) for name in ("bus", "barrier")]
    write_prepared(tmp_path, {"A": [boxes]}, categories=categories)
    for classes, expected in [(CLASSES, [3, 5]), (("barrier", "bus"), [1, 0])]:
        item = dataset_of(tmp_path, classes=classes)[0]
        assert item["data_samples"].gt_instances_3d.labels_3d.tolist() == expected
    (only,) = dataset_of(tmp_path, classes=("bus",))[0]["data_samples"].gt_instances_3d.labels_3d
    assert only == 0


def test_queue_with_a_frame_without_boxes_is_replaced(tmp_path):
    """K47"""
    far = [instance(xyz=(100, 0, 0))]
    write_prepared(tmp_path, {"A": [CAR, CAR, [], far, CAR, CAR, CAR]})
    dataset = dataset_of(tmp_path, queue_length=2)
    for epoch in range(20):
        for index in range(7):
            found = numbers(dataset[(0, epoch, index)])
            assert not {2, 3} & set(found)


def test_no_box_at_all_is_one_clear_error(tmp_path):
    write_prepared(tmp_path, {"A": [[], []]})
    with pytest.raises(ValueError, match="no queue of 3 key frames found in which every frame has"):
        dataset_of(tmp_path)[0]


def test_test_frame_without_boxes_has_empty_ones(tmp_path):
    """K47"""
    write_prepared(tmp_path, {"A": [[]]})
    truth = dataset_of(tmp_path, test_mode=True)[0]["data_samples"].gt_instances_3d
    assert truth.bboxes_3d.tensor.shape == (0, 9) and truth.labels_3d.shape == (0,)


def test_test_stream_is_absolute_and_goes_scene_by_scene(tmp_path):
    infos = write_prepared(tmp_path, {"A": [CAR] * 3, "B": [CAR] * 2})
    # Two scenes recorded at the same time by two cars, and a file in no order.
    content = {"A": [0.0, 1.0, 2.0], "B": [0.5, 1.5]}
    for info in infos:
        info["timestamp"] = content[info["scene_token"]][info["frame_idx"]]
    path = tmp_path / "autodrive_infos_train.pkl"
    stored = pickle.loads(path.read_bytes())
    stored["data_list"] = [infos[i] for i in (4, 1, 0, 3, 2)]
    path.write_bytes(pickle.dumps(stored))
    dataset = dataset_of(tmp_path, test_mode=True)
    items = [dataset[i] for i in range(len(dataset))]
    assert [numbers(item) for item in items] == [[0], [1], [2], [3], [4]]
    previous = [bool(item["data_samples"].prev_bev_exists[0]) for item in items]
    assert previous == [False, True, True, False, True]
    positions = [item["data_samples"].can_bus[0, 0] for item in items]
    np.testing.assert_allclose(positions, [0, 10, 20, 30, 40])
    assert dataset.scene_tokens == ["A"] * 3 + ["B"] * 2


def signature(item) -> tuple:
    return (*numbers(item), float(item["inputs"]["img"].double().sum()))


def test_items_depend_on_seed_epoch_and_index_alone(root):
    dataset = dataset_of(root, RANDOM)
    first = signature(dataset[(1, 2, 4)])
    dataset[(1, 2, 3)]
    assert signature(dataset[(1, 2, 4)]) == first
    assert signature(dataset_of(root, RANDOM)[(1, 2, 4)]) == first
    others = {signature(dataset[key]) for key in [(1, 3, 4), (2, 2, 4), (0, 0, 4)]}
    assert len(others | {first}) == 4
    assert signature(dataset[4]) == signature(dataset[(0, 0, 4)])


def loaded(dataset, **options) -> list[tuple]:
    sampler = QueueSampler(dataset, seed=5, infinite=False)
    loader = DataLoader(
        dataset, batch_size=2, sampler=sampler, collate_fn=pseudo_collate, **options
    )
    found = []
    for batch in loader:
        for images, sample in zip(batch["inputs"]["img"], batch["data_samples"]):
            found.append(signature({"inputs": {"img": images}, "data_samples": sample}))
    return found


def test_number_of_workers_changes_nothing(root):
    dataset = dataset_of(root, RANDOM)
    assert loaded(dataset) == loaded(dataset, num_workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_dataset_and_metric_travel_to_a_started_worker(root, method):
    """K40"""
    dataset = dataset_of(root, RANDOM)
    assert loaded(dataset) == loaded(dataset, num_workers=1, multiprocessing_context=method)
    metric = NuScenesDetectionMetric(str(root), split="train")
    assert pickle.loads(pickle.dumps(metric)).classes == metric.classes


def test_damaged_image_is_named_by_the_worker(root):
    path = root / "samples" / "CAM_BACK" / "4.jpg"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"CAM_BACK/4\.jpg is damaged: 200 bytes"):
        loaded(dataset_of(root), num_workers=1)


def test_model_that_needs_the_can_bus_is_told_at_once(tmp_path):
    """K41"""
    write_prepared(tmp_path, {"A": [CAR]}, can_bus_valid=False)
    dataset_of(tmp_path)
    with pytest.raises(ValueError, match="the model needs CAN bus data, and no key frame"):
        dataset_of(tmp_path, need_can_bus=True)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"queue_length": 0}, ValueError, "queue_length must be at least 1, got 0"),
        ({"split": "val"}, FileNotFoundError, "autodrive_infos_val.pkl does not exist; make it"),
        ({"data_root": "/nowhere"}, FileNotFoundError, "data root /nowhere is not a folder"),
    ],
)
def test_bad_arguments_are_named(root, options, error, problem):
    with pytest.raises(error, match=problem):
        NuScenesSequenceDataset(**{"data_root": str(root), "pipeline": LOAD, **options})


def test_split_without_key_frames_is_named(tmp_path):
    write_prepared(tmp_path, {})
    with pytest.raises(ValueError, match=r"split 'train' of .* has no key frames"):
        dataset_of(tmp_path)


@pytest.mark.parametrize("index", [-1, 8])
def test_index_outside_is_refused(root, index):
    with pytest.raises(IndexError, match=rf"index must be in \[0, 8\), got {index}"):
        dataset_of(root)[index]
