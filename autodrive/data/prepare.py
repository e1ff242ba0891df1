"""`autodrive data prepare`: info files of a nuScenes folder, through the official devkit."""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
from pyquaternion import Quaternion
from tqdm import tqdm

from .can_bus import stored_can_bus
from .classes import CAMERAS, CLASSES
from .files import read_pickle, write_pickle
from .info import INFO_VERSION, info_path

TABLES = (
    "attribute",
    "calibrated_sensor",
    "category",
    "ego_pose",
    "instance",
    "log",
    "map",
    "sample",
    "sample_annotation",
    "sample_data",
    "scene",
    "sensor",
    "visibility",
)
# version -> {split of ours: the devkit's name of it}
EVAL_SETS = {
    "v1.0-mini": {"train": "mini_train", "val": "mini_val"},
    "v1.0-trainval": {"train": "train", "val": "val"},
}
PARTS_FOLDER = ".autodrive_infos_{}"
MAX_SWEEPS = 10
MICROSECONDS = 1e-6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", required=True, help="nuScenes folder: samples/, sweeps/, v1.0-*/")
    parser.add_argument("--version", default="v1.0-mini", choices=sorted(EVAL_SETS))
    parser.add_argument("--out", help="folder for the info files (default: the nuScenes folder)")


def run(args: argparse.Namespace) -> None:
    prepare(args.root, args.version, args.out)


def prepare(root: str | Path, version: str = "v1.0-mini", out: str | Path | None = None) -> None:
    """Writes `autodrive_infos_train.pkl` and `autodrive_infos_val.pkl`.

    Scenes are finished one by one and kept in a folder beside the result until all are done, so an interrupted run
    goes on where it stopped. Key frames without CAN bus messages get zeros, those before the first message of their
    scene get that one; both get `can_bus_valid` False, and a last line counts them.

    Args:
        root: nuScenes folder.
        version: "v1.0-mini" or "v1.0-trainval".
        out: folder for the info files, if not the nuScenes folder; it then serves as data root in its place.

    Raises:
        FileNotFoundError: naming the missing folder, table, image or sweep.
        ValueError: naming a table or CAN bus file that is damaged, or a version without a known scene.
    """
    if version not in EVAL_SETS:
        raise ValueError(f"version must be one of {', '.join(EVAL_SETS)}, got {version!r}")
    root = Path(root)
    out = Path(out) if out else root
    check_layout(root, version)
    # The devkit reads for seconds and prints; it is imported and opened once the layout is known to be right.
    from nuscenes import NuScenes
    from nuscenes.utils.splits import create_splits_scenes

    print(f"reading the tables of {root / version}")
    try:
        nusc = NuScenes(version=version, dataroot=str(root), verbose=False)
    except json.JSONDecodeError:
        raise ValueError(damaged_table(root / version)) from None
    can_bus = PoseMessages(root)
    splits = create_splits_scenes()
    scenes = {scene["name"]: scene for scene in nusc.scene}
    names = {
        split: [name for name in splits[eval_set] if name in scenes]
        for split, eval_set in EVAL_SETS[version].items()
    }
    if not any(names.values()):
        raise ValueError(
            f"{root / version} has {len(scenes)} scenes, and none of them is in the official splits "
            f"{', '.join(EVAL_SETS[version].values())}"
        )
    parts = out / PARTS_FOLDER.format(_fingerprint(root, version))
    parts.mkdir(parents=True, exist_ok=True)
    for name in tqdm([*names["train"], *names["val"]], desc="preparing", unit="scene"):
        part = parts / f"{name}.pkl"
        if not part.exists():
            write_pickle(part, scene_infos(nusc, scenes[name], can_bus))
    for split, eval_set in EVAL_SETS[version].items():
        infos = [info for name in names[split] for info in read_pickle(parts / f"{name}.pkl")]
        infos.sort(key=lambda info: info["timestamp"])
        for index, info in enumerate(infos):
            info["sample_idx"] = index
        metainfo = {
            "categories": {name: label for label, name in enumerate(CLASSES)},
            "dataset": "nuscenes",
            "version": version,
            "info_version": INFO_VERSION,
            "split": split,
            "eval_set": eval_set,
        }
        if out.resolve() != root.resolve():
            metainfo["data_root"] = str(root.resolve())
        write_pickle(info_path(out, split), {"metainfo": metainfo, "data_list": infos})
        print(
            f"{info_path(out, split)}: {len(names[split])} scenes, {len(infos)} key frames"
            f"{_can_bus_note(infos)}"
        )
    for folder in out.glob(PARTS_FOLDER.format("*")):
        shutil.rmtree(folder)


def _can_bus_note(infos: list[dict]) -> str:
    invalid = [info for info in infos if not info["can_bus_valid"]]
    if not invalid:
        return ""
    scenes = len({info["scene_name"] for info in invalid})
    zeros = sum(not info["can_bus"].any() for info in invalid)
    early = len(invalid) - zeros
    kinds = f"{zeros} of zeros" + (f", {early} from before the first message" if early else "")
    return f"; {len(invalid)} key frames of {scenes} scenes without CAN bus ({kinds})"


def check_layout(root: Path, version: str) -> None:
    """FileNotFoundError with the first thing of a nuScenes folder that is not there."""
    if not root.is_dir():
        raise FileNotFoundError(f"nuScenes root {root} is not a folder")
    tables = root / version
    if not tables.is_dir():
        found = ", ".join(sorted(p.name for p in root.glob("v1.0-*"))) or "no v1.0-* folder"
        raise FileNotFoundError(f"{tables} does not exist; {root} has {found}")
    for table in TABLES:
        if not (tables / f"{table}.json").is_file():
            raise FileNotFoundError(f"table {tables / table}.json does not exist")
    for sensor in (*CAMERAS, "LIDAR_TOP"):
        if not (root / "samples" / sensor).is_dir():
            raise FileNotFoundError(f"folder {root / 'samples' / sensor} does not exist")


def damaged_table(folder: Path) -> str:
    """What is wrong with the first table of a folder that cannot be parsed."""
    for table in TABLES:
        path = folder / f"{table}.json"
        try:
            json.loads(path.read_bytes())
        except ValueError as error:
            return f"table {path} is damaged, {path.stat().st_size} bytes: {error}"
    return f"a table of {folder} is damaged"


def _fingerprint(root: Path, version: str) -> str:
    """Changes with the root, the tables and the CAN bus, so that parts of other data are not taken."""
    digest = hashlib.sha256(f"{INFO_VERSION} {version} {root.resolve()}".encode())
    for path in [*(root / version / f"{table}.json" for table in TABLES), root / "can_bus"]:
        if path.exists():
            stat = path.stat()
            digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:12]


class PoseMessages:
    """CAN bus "pose" messages by scene name; empty where the folder or the scene has none."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "can_bus"
        self.api = None
        if self.folder.is_dir():
            from nuscenes.can_bus.can_bus_api import NuScenesCanBus

            self.api = NuScenesCanBus(dataroot=str(root))
        else:
            print(f"{self.folder} does not exist: models get zeros instead of CAN bus data")

    def __getitem__(self, scene_name: str) -> list[dict]:
        path = self.folder / f"{scene_name}_pose.json"
        if self.api is None or not path.is_file():
            return []
        if int(scene_name.removeprefix("scene-")) in self.api.can_blacklist:
            return []
        try:
            return self.api.get_messages(scene_name, "pose")
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged, {path.stat().st_size} bytes: {error}") from None


def scene_infos(nusc, scene: dict, can_bus: PoseMessages) -> list[dict]:
    """Infos of the key frames of one scene, in order."""
    messages = can_bus[scene["name"]]
    infos = []
    token = scene["first_sample_token"]
    while token:
        sample = nusc.get("sample", token)
        infos.append(sample_info(nusc, scene, sample, messages, frame_idx=len(infos)))
        token = sample["next"]
    return infos


def sample_info(nusc, scene: dict, sample: dict, messages: list[dict], frame_idx: int) -> dict:
    lidar = nusc.get("sample_data", sample["data"]["LIDAR_TOP"])
    lidar2ego, ego2global, rotation = _poses(nusc, lidar)
    lidar2global = ego2global @ lidar2ego
    can_bus, can_bus_valid = stored_can_bus(messages, sample["timestamp"])
    return {
        "sample_idx": 0,
        "token": sample["token"],
        "timestamp": sample["timestamp"] * MICROSECONDS,
        "scene_token": scene["token"],
        "scene_name": scene["name"],
        "frame_idx": frame_idx,
        "prev": sample["prev"],
        "next": sample["next"],
        "ego2global": ego2global,
        "ego2global_rotation": rotation,
        "can_bus": can_bus,
        "can_bus_valid": can_bus_valid,
        "lidar_points": {
            "num_pts_feats": 5,
            "lidar_path": _existing(nusc, lidar),
            "lidar2ego": lidar2ego,
        },
        "lidar_sweeps": lidar_sweeps(nusc, lidar, lidar2global),
        "images": {
            camera: _image_info(nusc, sample["data"][camera], lidar2global) for camera in CAMERAS
        },
        "instances": [_instance_info(nusc, t, lidar2global) for t in sample["anns"]],
    }


def _poses(nusc, sample_data: dict) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """sensor2ego (4, 4), ego2global (4, 4), and the rotation of the latter as the quaternion of the table."""
    calibration = nusc.get("calibrated_sensor", sample_data["calibrated_sensor_token"])
    ego = nusc.get("ego_pose", sample_data["ego_pose_token"])
    return _matrix(calibration), _matrix(ego), list(ego["rotation"])


def _matrix(pose: dict) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3] = Quaternion(pose["rotation"]).rotation_matrix
    matrix[:3, 3] = pose["translation"]
    return matrix


def _existing(nusc, sample_data: dict) -> str:
    path = Path(nusc.dataroot) / sample_data["filename"]
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist, sample_data {sample_data['token']} needs it"
        )
    return sample_data["filename"]


def _image_info(nusc, token: str, lidar2global: np.ndarray) -> dict:
    image = nusc.get("sample_data", token)
    cam2ego, ego2global, _ = _poses(nusc, image)
    calibration = nusc.get("calibrated_sensor", image["calibrated_sensor_token"])
    return {
        "img_path": _existing(nusc, image),
        "cam2img": np.array(calibration["camera_intrinsic"]),
        "cam2ego": cam2ego,
        # With the motion of the ego between the two shutter times.
        "lidar2cam": np.linalg.inv(ego2global @ cam2ego) @ lidar2global,
        "timestamp": image["timestamp"] * MICROSECONDS,
        "sample_data_token": token,
    }


def lidar_sweeps(nusc, lidar: dict, lidar2global: np.ndarray) -> list[dict]:
    """The sweeps before a key frame, latest first, at most `MAX_SWEEPS`."""
    sweeps = []
    while lidar["prev"] and len(sweeps) < MAX_SWEEPS:
        lidar = nusc.get("sample_data", lidar["prev"])
        lidar2ego, ego2global, _ = _poses(nusc, lidar)
        sweeps.append(
            {
                "lidar_points": {
                    "num_pts_feats": 5,
                    "lidar_path": _existing(nusc, lidar),
                    "lidar2ego": lidar2ego,
                    "lidar2sensor": np.linalg.inv(ego2global @ lidar2ego) @ lidar2global,
                },
                "ego2global": ego2global,
                "timestamp": lidar["timestamp"] * MICROSECONDS,
                "sample_data_token": lidar["token"],
            }
        )
    return sweeps


def _instance_info(nusc, token: str, lidar2global: np.ndarray) -> dict:
    from nuscenes.eval.detection.utils import category_to_detection_name

    annotation = nusc.get("sample_annotation", token)
    global2lidar = np.linalg.inv(lidar2global)
    center = global2lidar @ [*annotation["translation"], 1.0]
    heading = global2lidar[:3, :3] @ Quaternion(annotation["rotation"]).rotation_matrix[:, 0]
    velocity = global2lidar[:3, :3] @ [*nusc.box_velocity(token)[:2], 0.0]
    width, length, height = annotation["size"]
    name = category_to_detection_name(annotation["category_name"])
    points = annotation["num_lidar_pts"] + annotation["num_radar_pts"]
    return {
        "bbox_3d": [*center[:3], length, width, height, np.arctan2(heading[1], heading[0])],
        "bbox_label_3d": CLASSES.index(name) if name else -1,
        "bbox_3d_isvalid": points > 0,
        "num_lidar_pts": annotation["num_lidar_pts"],
        "num_radar_pts": annotation["num_radar_pts"],
        "velocity": velocity[:2].tolist(),
        "instance_token": annotation["instance_token"],
        "attributes": [nusc.get("attribute", t)["name"] for t in annotation["attribute_tokens"]],
    }
