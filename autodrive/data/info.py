"""Info files: what a dataset needs to know of every key frame, in mmdet3d's format 1.1 with time added.

`autodrive data prepare` writes them for a nuScenes folder; a single key-frame folder is turned into the same form here.
Paths in them are relative to the nuScenes folder, see `files_root`.
"""

from pathlib import Path

import numpy as np
from pyquaternion import Quaternion

from .can_bus import CAN_BUS_SIZE
from .classes import CAMERAS
from .files import read_pickle

INFO_VERSION = "1.1"
INSTANCE_KEYS = (
    "bbox_3d",
    "bbox_label_3d",
    "bbox_3d_isvalid",
    "num_lidar_pts",
    "num_radar_pts",
    "velocity",
)


def info_path(data_root: str | Path, split: str) -> Path:
    return Path(data_root) / f"autodrive_infos_{split}.pkl"


def is_key_frame_folder(path: str | Path) -> bool:
    """Whether a folder is one key frame: one pickle beside its images, and no nuScenes."""
    path = Path(path)
    if not path.is_dir() or has_info_files(path) or any(path.glob("v1.0-*")):
        return False
    return len(list(path.glob("*.pkl"))) == 1


def has_info_files(path: str | Path) -> bool:
    return any(Path(path).glob("autodrive_infos_*.pkl"))


def load_infos(data_root: str | Path, split: str = "val") -> dict:
    """The infos of one split of a prepared nuScenes folder, or of a key-frame folder, which has the same one for all.

    Returns:
        dict(metainfo=dict(categories, version, split, ...), data_list=[one dict per key frame]).

    Raises:
        FileNotFoundError, ValueError: naming the folder or file, and what to do.
    """
    data_root = Path(data_root)
    if not data_root.is_dir():
        raise FileNotFoundError(f"data root {data_root} is not a folder")
    if is_key_frame_folder(data_root):
        return load_key_frame(data_root)
    path = info_path(data_root, split)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist; make it with: autodrive data prepare --root {data_root}"
        )
    infos = read_pickle(path)
    if not isinstance(infos, dict) or not {"metainfo", "data_list"} <= infos.keys():
        raise ValueError(f"{path} is no info file: it must hold metainfo and data_list")
    return infos


def load_key_frame(folder: str | Path) -> dict:
    """One key frame that stands alone: an mmdet3d info pickle of one sample, and its files beside it.

    It becomes a scene of one frame, without CAN bus. The sign of the ego's quaternion, which `can_bus` shows, cannot be
    told from such a file: it has a matrix only.

    Raises:
        FileNotFoundError, ValueError: naming the file, and what it has not.
    """
    folder = Path(folder)
    pickles = sorted(folder.glob("*.pkl"))
    if len(pickles) != 1:
        raise ValueError(f"a key-frame folder has one .pkl file, {folder} has {len(pickles)}")
    content = read_pickle(pickles[0])
    try:
        categories = dict(content["metainfo"]["categories"])
        (sample,) = content["data_list"]
        ego2global = np.array(sample["ego2global"], dtype=np.float64)
        info = {
            "sample_idx": 0,
            "token": str(sample["token"]),
            "timestamp": float(sample["timestamp"]),
            "scene_token": str(sample["token"]),
            "scene_name": folder.name,
            "frame_idx": 0,
            "prev": "",
            "next": "",
            "ego2global": ego2global,
            "ego2global_rotation": list(Quaternion(matrix=ego2global, rtol=1e-4, atol=1e-4)),
            "can_bus": np.zeros(CAN_BUS_SIZE),
            "can_bus_valid": False,
            "lidar_points": _with_keys(sample["lidar_points"], "lidar_path", "lidar2ego"),
            "lidar_sweeps": list(sample.get("lidar_sweeps", [])),
            "images": {
                camera: _with_keys(sample["images"][camera], "img_path", "cam2img", "lidar2cam")
                for camera in CAMERAS
            },
            "instances": [_with_keys(i, *INSTANCE_KEYS) for i in sample["instances"]],
        }
    except (KeyError, TypeError, ValueError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{pickles[0]} is no info file of one sample (mmdet3d format 1.1): {problem}"
        ) from None
    for image in info["images"].values():
        if not (folder / image["img_path"]).is_file():
            raise FileNotFoundError(f"{folder / image['img_path']} does not exist")
    metainfo = {
        "categories": categories,
        "dataset": "nuscenes",
        "version": "key-frame",
        "info_version": INFO_VERSION,
        "split": "val",
        "eval_set": "",
    }
    return {"metainfo": metainfo, "data_list": [info]}


def _with_keys(values: dict, *keys: str) -> dict:
    for key in keys:
        values[key]
    return dict(values)


def files_root(data_root: str | Path, infos: dict) -> Path:
    """The folder that the paths of infos are relative to: the data root, unless the infos lie elsewhere."""
    return Path(infos["metainfo"].get("data_root", data_root))


def lidar2img(image: dict) -> np.ndarray:
    """(4, 4) from the lidar frame to pixels of one camera at full size."""
    intrinsic = np.eye(4)
    intrinsic[:3, :3] = np.asarray(image["cam2img"], dtype=np.float64)[:3, :3]
    return intrinsic @ np.asarray(image["lidar2cam"], dtype=np.float64)
