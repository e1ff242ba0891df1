"""The tables of nuScenes v1.0, made from the simulated scenes and what the sensors saw."""

import numpy as np
from pyquaternion import Quaternion

from autodrive.data.synth.recording import Seen
from autodrive.data.synth.scene import KEY_FRAME_STEP, Scene, token

ANNOTATION_RANGE = 70.0  # m from the ego, for a box to be annotated
MIN_PIXELS = 12  # of an object without lidar points, for it to be noticed
CATEGORIES = {
    "human.pedestrian.adult": "Adult subcategory.",
    "human.pedestrian.child": "Child subcategory.",
    "human.pedestrian.wheelchair": "Wheelchairs. If a person is in the wheelchair, include in the annotation.",
    "human.pedestrian.stroller": "Strollers. If a person is in the stroller, include in the annotation.",
    "human.pedestrian.personal_mobility": "A small electric or self-propelled vehicle, e.g. skateboard, segway.",
    "human.pedestrian.police_officer": "Police officer.",
    "human.pedestrian.construction_worker": "Construction worker.",
    "animal": "All animals, e.g. cats, rats, dogs, deer, birds.",
    "vehicle.car": "Vehicle designed primarily for personal use, e.g. sedans, hatch-backs, vans, jeeps.",
    "vehicle.motorcycle": "Gasoline or electric powered 2-wheeled vehicle.",
    "vehicle.bicycle": "Human or electric powered 2-wheeled vehicle designed to travel at lower speeds.",
    "vehicle.bus.bendy": "Bus with two or more rigid sections linked by a pivoting joint.",
    "vehicle.bus.rigid": "Rigid bus.",
    "vehicle.truck": "Vehicle primarily designed to haul cargo.",
    "vehicle.construction": "Vehicle primarily designed for construction.",
    "vehicle.emergency.ambulance": "All types of ambulances.",
    "vehicle.emergency.police": "All types of police vehicles.",
    "vehicle.trailer": "Any vehicle trailer.",
    "movable_object.barrier": "Temporary road barrier placed in the scene in order to redirect traffic.",
    "movable_object.trafficcone": "All types of traffic cone.",
    "movable_object.pushable_pullable": "Objects that a pedestrian may push or pull.",
    "movable_object.debris": "Movable object that is left on the driveable surface.",
    "static_object.bicycle_rack": "Area or device intended to park or secure bicycles in a row.",
}
ATTRIBUTES = {
    "vehicle.moving": "Vehicle is moving.",
    "vehicle.stopped": "Vehicle, with a driver/rider in/on it, is currently stationary but has an intent to move.",
    "vehicle.parked": "Vehicle is stationary (usually for longer duration) with no immediate intent to move.",
    "cycle.with_rider": "There is a rider on the bicycle or motorcycle.",
    "cycle.without_rider": "There is no rider on the bicycle or motorcycle.",
    "pedestrian.sitting_lying_down": "The human is sitting or lying down.",
    "pedestrian.standing": "The human is standing.",
    "pedestrian.moving": "The human is moving.",
}
VISIBILITY = (
    (1, "v0-40", 0, 40),
    (2, "v40-60", 40, 60),
    (3, "v60-80", 60, 80),
    (4, "v80-100", 80, 100),
)


def make_tables(
    scenes: list[Scene], seen: list[list[Seen]], masks: dict[str, str]
) -> dict[str, list]:
    """All thirteen tables.

    Args:
        seen: for each scene, for each of its key frames.
        masks: file of the map mask for each location.
    """
    sensors = [sensor.name for sensor in scenes[0].sensors]
    tables: dict[str, list] = {
        "category": [
            {"token": token("category", name), "name": name, "description": text}
            for name, text in CATEGORIES.items()
        ],
        "attribute": [
            {"token": token("attribute", name), "name": name, "description": text}
            for name, text in ATTRIBUTES.items()
        ],
        "visibility": [
            {
                "token": str(key),
                "level": level,
                "description": f"visibility of whole object is between {low} and {high}%",
            }
            for key, level, low, high in VISIBILITY
        ],
        "sensor": [
            {
                "token": token("sensor", name),
                "channel": name,
                "modality": "lidar" if name == "LIDAR_TOP" else "camera",
            }
            for name in sensors
        ],
        "map": [
            {
                "category": "semantic_prior",
                "token": token("map", location),
                "filename": filename,
                "log_tokens": [s.token("log") for s in scenes if s.location == location],
            }
            for location, filename in masks.items()
        ],
    }
    for name in ("calibrated_sensor", "ego_pose", "instance", "log", "sample", "sample_annotation"):
        tables[name] = []
    tables["sample_data"], tables["scene"] = [], []
    for scene, frames in zip(scenes, seen):
        _add_scene(tables, scene)
        _add_sample_data(tables, scene)
        _add_annotations(tables, scene, frames)
    return tables


def _add_scene(tables: dict[str, list], scene: Scene) -> None:
    samples = [scene.token("sample", k) for k in range(scene.key_frames)]
    tables["log"].append(
        {
            "token": scene.token("log"),
            "logfile": scene.log,
            "vehicle": scene.log[:4],
            "date_captured": scene.log[5:15],
            "location": scene.location,
        }
    )
    tables["scene"].append(
        {
            "token": scene.token("scene"),
            "log_token": scene.token("log"),
            "nbr_samples": len(samples),
            "first_sample_token": samples[0],
            "last_sample_token": samples[-1],
            "name": scene.name,
            "description": scene.description,
        }
    )
    for k, sample in enumerate(samples):
        tables["sample"].append(
            {
                "token": sample,
                "timestamp": scene.start + k * KEY_FRAME_STEP,
                "prev": samples[k - 1] if k else "",
                "next": samples[k + 1] if k + 1 < len(samples) else "",
                "scene_token": scene.token("scene"),
            }
        )


def _add_sample_data(tables: dict[str, list], scene: Scene) -> None:
    for sensor in scene.sensors:
        lidar = sensor.intrinsic is None
        calibration = scene.token("calibrated_sensor", sensor.name)
        tables["calibrated_sensor"].append(
            {
                "token": calibration,
                "sensor_token": token("sensor", sensor.name),
                "translation": sensor.to_ego[:3, 3].tolist(),
                "rotation": _quaternion(sensor.to_ego),
                "camera_intrinsic": [] if lidar else sensor.intrinsic.tolist(),
            }
        )
        shots = scene.shots(sensor)
        tokens = [scene.token("sample_data", sensor.name, shot.time) for shot in shots]
        for i, shot in enumerate(shots):
            tables["ego_pose"].append(
                {
                    "token": tokens[i],
                    "timestamp": scene.start + shot.time,
                    "rotation": _yaw_quaternion(scene.world.ego.pose(shot.time * 1e-6)[2]),
                    "translation": [*scene.world.ego.pose(shot.time * 1e-6)[:2].tolist(), 0.0],
                }
            )
            tables["sample_data"].append(
                {
                    "token": tokens[i],
                    "sample_token": scene.token("sample", shot.key_frame),
                    "ego_pose_token": tokens[i],
                    "calibrated_sensor_token": calibration,
                    "timestamp": scene.start + shot.time,
                    "fileformat": "pcd" if lidar else "jpg",
                    "is_key_frame": shot.is_key_frame,
                    "height": 0 if lidar else scene.image_size[1],
                    "width": 0 if lidar else scene.image_size[0],
                    "filename": scene.filename(sensor, shot),
                    "prev": tokens[i - 1] if i else "",
                    "next": tokens[i + 1] if i + 1 < len(shots) else "",
                }
            )


def _add_annotations(tables: dict[str, list], scene: Scene, seen: list[Seen]) -> None:
    """Annotates an actor from the first to the last key frame that sees it near the ego, if there are two or more."""
    times = np.arange(scene.key_frames) * KEY_FRAME_STEP * 1e-6
    ego = scene.world.ego.pose(times)
    attributes = {row["name"]: row["token"] for row in tables["attribute"]}
    for index, actor in enumerate(scene.world.actors):
        poses = actor.pose(times)
        distance = np.hypot(*(poses - ego)[:, :2].T)
        noticed = [s.lidar_points[index] > 0 or s.visible[index] >= MIN_PIXELS for s in seen]
        near = (distance < ANNOTATION_RANGE) & actor.on_road(times) & noticed
        if near.sum() < 2:
            continue
        frames = range(np.argmax(near), len(near) - np.argmax(near[::-1]))
        instance = scene.token("instance", index)
        tokens = {k: scene.token("sample_annotation", index, k) for k in frames}
        tables["instance"].append(
            {
                "token": instance,
                "category_token": token("category", actor.category),
                "nbr_annotations": len(tokens),
                "first_annotation_token": tokens[frames[0]],
                "last_annotation_token": tokens[frames[-1]],
            }
        )
        for k in frames:
            share = seen[k].visible[index] / max(seen[k].outline[index], 1)
            tables["sample_annotation"].append(
                {
                    "token": tokens[k],
                    "sample_token": scene.token("sample", k),
                    "instance_token": instance,
                    "visibility_token": str(1 + sum(share >= level for level in (0.4, 0.6, 0.8))),
                    "attribute_tokens": [attributes[actor.attribute]] if actor.attribute else [],
                    "translation": [*poses[k, :2].tolist(), actor.size[2] / 2],
                    "size": list(actor.size),
                    "rotation": _yaw_quaternion(poses[k, 2]),
                    "prev": tokens.get(k - 1, ""),
                    "next": tokens.get(k + 1, ""),
                    "num_lidar_pts": int(seen[k].lidar_points[index]),
                    "num_radar_pts": 0,
                }
            )


def _yaw_quaternion(yaw: float) -> list[float]:
    return [float(np.cos(yaw / 2)), 0.0, 0.0, float(np.sin(yaw / 2))]


def _quaternion(matrix: np.ndarray) -> list[float]:
    return Quaternion(matrix=matrix[:3, :3], rtol=1e-4, atol=1e-4).elements.tolist()
