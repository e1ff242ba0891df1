"""A folder with one key frame as data root."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.data.dataset import NuScenesSequenceDataset
from autodrive.data.info import is_key_frame_folder, load_infos, load_key_frame
from autodrive.data.point_cloud import read_points
from autodrive.data.transforms import LoadMultiViewImages
from tests.autodrive.small_data import instance, key_frame, write_key_frame

# As in the files of mmdet3d, which has another order of classes.
CATEGORIES = (
    "car truck trailer bus construction_vehicle bicycle motorcycle pedestrian traffic_cone barrier"
).split()


@pytest.fixture
def folder(tmp_path):
    boxes = [
        instance("pedestrian", (3.0, 4.0, 0.0), velocity=(np.nan, np.nan), categories=CATEGORIES),
        instance("barrier", (-5.0, 20.0, 0.5), categories=CATEGORIES),
    ]
    write_key_frame(tmp_path, boxes, CATEGORIES)
    return tmp_path


def test_it_is_a_scene_of_one_frame_without_can_bus(folder):
    assert is_key_frame_folder(folder)
    (info,) = load_key_frame(folder)["data_list"]
    assert (info["prev"], info["next"], info["frame_idx"]) == ("", "", 0)
    assert not info["can_bus"].any() and not info["can_bus_valid"]
    assert list(info["images"]) == list(CAMERAS)
    assert len(read_points(folder / info["lidar_points"]["lidar_path"])) == 50
    for split in ("train", "val"):
        assert load_infos(folder, split)["data_list"][0]["token"] == "frame"


def test_the_dataset_maps_class_names_and_unknown_velocities(folder):
    dataset = NuScenesSequenceDataset(
        data_root=str(folder),
        pipeline=[dict(type=LoadMultiViewImages)],
        test_mode=True,
    )
    (item,) = [dataset[i] for i in range(len(dataset))]
    sample = item["data_samples"]
    names = [CLASSES[label] for label in sample.gt_instances_3d.labels_3d]
    assert names == ["pedestrian", "barrier"]
    boxes = sample.gt_instances_3d.bboxes_3d.tensor
    np.testing.assert_allclose(boxes[0], [3, 4, -0.75, 4, 2, 1.5, 0.3, 0, 0], rtol=1e-6)
    assert item["inputs"]["img"].shape == (1, 6, 3, 18, 32)
    heading = 2.0
    np.testing.assert_allclose(sample.can_bus[0, [0, 1, 16]], [600, 1600, heading])
    np.testing.assert_allclose(sample.can_bus[0, 3:7], np.cos(heading / 2))
    assert not sample.prev_bev_exists.any()


def test_it_also_serves_as_training_queue_with_itself_as_history(folder):
    dataset = NuScenesSequenceDataset(
        data_root=str(folder),
        pipeline=[dict(type=LoadMultiViewImages)],
        queue_length=3,
    )
    sample = dataset[0]["data_samples"]
    assert sample.token == ["frame"] * 3
    assert sample.prev_bev_exists.tolist() == [False, True, True]
    assert not sample.can_bus[:, [0, 1, 2, 17]].any()


def test_a_nuscenes_folder_with_a_pickle_in_it_is_none(folder):
    (folder / "v1.0-mini").mkdir()
    assert not is_key_frame_folder(folder)
    with pytest.raises(FileNotFoundError, match="autodrive data prepare --root"):
        load_infos(folder)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda c: c["data_list"][0]["images"].pop("CAM_BACK"), "it has no 'CAM_BACK'"),
        (lambda c: c["data_list"][0]["images"]["CAM_BACK"].pop("cam2img"), "no 'cam2img'"),
        (lambda c: c["data_list"][0]["instances"][0].pop("velocity"), "no 'velocity'"),
        (lambda c: c.pop("metainfo"), "no 'metainfo'"),
        (lambda c: c["data_list"].append(c["data_list"][0]), "too many values"),
        (lambda c: c["data_list"][0].update(ego2global=np.zeros((3, 4))), "atrix"),
    ],
    ids=["camera", "intrinsic", "velocity", "metainfo", "two samples", "pose"],
)
def test_what_is_missing_in_the_pickle_is_named(folder, change, problem):
    content = key_frame([instance()], CLASSES)
    change(content)
    (folder / "frame.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=rf"frame\.pkl is no info file of one sample .*{problem}"):
        load_key_frame(folder)


def test_missing_image_is_named(folder):
    (folder / "CAM_BACK.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"CAM_BACK\.jpg does not exist"):
        load_key_frame(folder)


def test_pickle_of_anything_but_data_is_refused_by_name(folder):
    (folder / "frame.pkl").write_bytes(pickle.dumps({"data_list": [Fraction(1, 2)]}))
    with pytest.raises(
        ValueError, match=r"frame\.pkl cannot be read: it holds fractions\.Fraction"
    ):
        load_key_frame(folder)


def test_truncated_pickle_is_named(folder):
    path = folder / "frame.pkl"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"frame\.pkl cannot be read"):
        load_key_frame(folder)


def test_folder_with_two_pickles_is_refused(folder):
    (folder / "other.pkl").write_bytes(b"")
    with pytest.raises(ValueError, match="has 2"):
        load_key_frame(folder)
