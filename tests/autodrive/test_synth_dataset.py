"""The synthetic dataset as the official devkit sees it."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from nuscenes import NuScenes
from nuscenes.can_bus.can_bus_api import NuScenesCanBus
from nuscenes.eval.common.config import config_factory
from nuscenes.eval.detection.evaluate import DetectionEval
from nuscenes.eval.detection.utils import category_to_detection_name
from nuscenes.map_expansion.map_api import NuScenesMap
from nuscenes.utils.color_map import get_colormap
from nuscenes.utils.geometry_utils import BoxVisibility, view_points
from nuscenes.utils.splits import mini_train, mini_val
from pyquaternion import Quaternion

from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.data.synth import plan
from autodrive.data.synth.recording import take_picture
from autodrive.data.synth.scene import LOCATIONS, Scene
from autodrive.data.synth.world import STILL, Actor

LAYERS = (
    "drivable_area road_segment road_block lane lane_connector ped_crossing walkway stop_line "
    "carpark_area road_divider lane_divider traffic_light"
).split()


@pytest.fixture(scope="module")
def nusc(synth_root: Path) -> NuScenes:
    return NuScenes("v1.0-mini", str(synth_root), verbose=False)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """What `synth_root` was recorded from."""
    return plan(2, 0, (320, 180), 3.0)[1]


def actor_of(scenes: list[Scene], nusc: NuScenes, annotation: dict) -> tuple[Scene, int]:
    """The simulated object behind an annotation."""
    sample = nusc.get("sample", annotation["sample_token"])
    name = nusc.get("scene", sample["scene_token"])["name"]
    scene = next(scene for scene in scenes if scene.name == name)
    for index in range(len(scene.world.actors)):
        if scene.token("instance", index) == annotation["instance_token"]:
            return scene, index
    raise AssertionError(f"annotation {annotation['token']} belongs to no actor")


def chain(nusc: NuScenes, table: str, first: str) -> list[dict]:
    """Records from the first on along `next`; `prev` is checked on the way."""
    records, previous = [], ""
    while first:
        record = nusc.get(table, first)
        assert record["prev"] == previous
        records.append(record)
        previous, first = first, record["next"]
    return records


def test_tables_hold_the_official_vocabulary(nusc: NuScenes):
    lidarseg_only = {"noise", "vehicle.ego"}
    official = {
        name
        for name in get_colormap()
        if not name.startswith(("flat.", "static.")) and name not in lidarseg_only
    }
    assert {row["name"] for row in nusc.category} == official
    assert len(nusc.category) == 23
    assert [row["token"] for row in nusc.visibility] == ["1", "2", "3", "4"]
    assert len(nusc.attribute) == 8
    assert {row["channel"] for row in nusc.sensor} == {*CAMERAS, "LIDAR_TOP"}
    names = [scene["name"] for scene in nusc.scene]
    assert names[0] in mini_train and names[1] in mini_val


def test_tokens_are_unique_and_references_resolve(nusc: NuScenes):
    for table in nusc.table_names:
        rows = getattr(nusc, table)
        assert rows and len({row["token"] for row in rows}) == len(rows)
        for row in rows:
            for key, value in row.items():
                if key.endswith("_token") and isinstance(value, str) and key != "map_token":
                    target = key.removesuffix("_token")
                    target = target.removeprefix("first_").removeprefix("last_")
                    target = "sample_annotation" if target == "annotation" else target
                    assert nusc.get(target, value)


def test_chains_of_samples_annotations_and_sensor_data_are_complete(nusc: NuScenes):
    for scene in nusc.scene:
        samples = chain(nusc, "sample", scene["first_sample_token"])
        assert len(samples) == scene["nbr_samples"] == 6
        assert samples[-1]["token"] == scene["last_sample_token"]
        assert set(np.diff([sample["timestamp"] for sample in samples])) == {500_000}
        for channel in samples[0]["data"]:
            data = chain(nusc, "sample_data", samples[0]["data"][channel])
            times = np.diff([row["timestamp"] for row in data])
            assert set(times) == ({50_000} if channel == "LIDAR_TOP" else {500_000})
            keys = [row for row in data if row["is_key_frame"]]
            assert [row["sample_token"] for row in keys] == [row["token"] for row in samples]
            assert len(data) == (51 if channel == "LIDAR_TOP" else 6)
    annotated = 0
    for instance in nusc.instance:
        rows = chain(nusc, "sample_annotation", instance["first_annotation_token"])
        assert rows[-1]["token"] == instance["last_annotation_token"]
        assert len(rows) == instance["nbr_annotations"] >= 2
        assert {row["instance_token"] for row in rows} == {instance["token"]}
        annotated += len(rows)
    assert annotated == len(nusc.sample_annotation)


def test_files_exist_under_official_names_with_the_right_content(nusc: NuScenes, synth_root: Path):
    for row in nusc.sample_data:
        path = synth_root / row["filename"]
        folder, channel, name = row["filename"].split("/")
        assert folder == ("samples" if row["is_key_frame"] else "sweeps")
        log = nusc.get("log", nusc.get("scene", sample_scene(nusc, row))["log_token"])["logfile"]
        stem = f"{log}__{channel}__{row['timestamp']}"
        assert name == stem + (".pcd.bin" if channel == "LIDAR_TOP" else ".jpg")
        if channel == "LIDAR_TOP":
            points = np.fromfile(path, np.float32).reshape(-1, 5)
            assert len(points) > 15_000 and np.isfinite(points).all()
            assert points[:, 3].min() >= 0 and points[:, 3].max() <= 255
            assert set(np.unique(points[:, 4])) <= set(range(32))
            assert np.linalg.norm(points[:, :3], axis=1).max() < 101
        else:
            assert cv2.imread(str(path)).shape == (180, 320, 3)
            assert (row["width"], row["height"]) == (320, 180)


def sample_scene(nusc: NuScenes, row: dict) -> str:
    return nusc.get("sample", row["sample_token"])["scene_token"]


def test_no_radar_but_samples_hold_all_other_sensors(nusc: NuScenes):
    for sample in nusc.sample:
        assert set(sample["data"]) == {*CAMERAS, "LIDAR_TOP"}
    assert all(row["num_radar_pts"] == 0 for row in nusc.sample_annotation)


def test_ego_poses_lie_on_the_simulated_drive_at_each_sensors_own_time(nusc, scenes):
    for row in nusc.sample_data:
        pose = nusc.get("ego_pose", row["ego_pose_token"])
        assert pose["timestamp"] == row["timestamp"]
        name = nusc.get("scene", sample_scene(nusc, row))["name"]
        scene = next(scene for scene in scenes if scene.name == name)
        x, y, yaw = scene.world.ego.pose((row["timestamp"] - scene.start) * 1e-6)
        np.testing.assert_allclose(pose["translation"], [x, y, 0], atol=1e-9)
        forward = Quaternion(pose["rotation"]).rotate([1, 0, 0])
        np.testing.assert_allclose(forward, [np.cos(yaw), np.sin(yaw), 0], atol=1e-9)
    cameras = [row for row in nusc.sample_data if row["channel"] in CAMERAS]
    offsets = {
        row["timestamp"] - nusc.get("sample", row["sample_token"])["timestamp"] for row in cameras
    }
    assert len(offsets) == 6 and min(offsets) > -50_000 and max(offsets) <= 0


def test_box_velocity_of_the_devkit_is_the_simulated_velocity(nusc, scenes):
    moving = 0
    for row in nusc.sample_annotation:
        scene, index = actor_of(scenes, nusc, row)
        actor = scene.world.actors[index]
        t = (nusc.get("sample", row["sample_token"])["timestamp"] - scene.start) * 1e-6
        t0, t1 = t - 0.5 * (row["prev"] != ""), t + 0.5 * (row["next"] != "")
        expected = (actor.pose(t1) - actor.pose(t0))[:2] / (t1 - t0)
        velocity = nusc.box_velocity(row["token"])
        np.testing.assert_allclose(velocity, [*expected, 0], atol=1e-6)
        x, y, yaw = actor.pose(t)
        np.testing.assert_allclose(row["translation"], [x, y, actor.size[2] / 2], atol=1e-9)
        heading = Quaternion(row["rotation"]).rotate([1, 0, 0])[:2]
        np.testing.assert_allclose(heading, [np.cos(yaw), np.sin(yaw)], atol=1e-9)
        speed = np.hypot(*velocity[:2])
        attributes = [nusc.get("attribute", token)["name"] for token in row["attribute_tokens"]]
        if speed > 0.2:
            moving += 1
            assert attributes[0] in ("vehicle.moving", "cycle.with_rider", "pedestrian.moving")
            if actor.category.startswith("vehicle."):  # cars drive forward, not sideways
                assert heading @ velocity[:2] > 0.98 * speed
        else:
            assert speed < 1e-6 and "vehicle.moving" not in attributes
    assert moving > 100


def test_lidar_points_in_boxes_are_counted_and_lie_on_surfaces(nusc, scenes, synth_root):
    checked = 0
    for sample in nusc.sample[::5]:
        path, boxes, _ = nusc.get_sample_data(sample["data"]["LIDAR_TOP"])
        points = np.fromfile(path, np.float32).reshape(-1, 5)[:, :3].astype(float)
        for box in boxes:
            row = nusc.get("sample_annotation", box.token)
            scene, index = actor_of(scenes, nusc, row)
            actor = scene.world.actors[index]
            local = (points - box.center) @ box.rotation_matrix
            half = np.array([actor.size[1], actor.size[0], actor.size[2]]) / 2
            inside = (np.abs(local) <= half).all(axis=1)
            assert abs(np.count_nonzero(inside) - row["num_lidar_pts"]) <= 2  # on the very faces
            local = local[inside] + [0, 0, half[2]]
            local = local[local[:, 2] > 0.06]  # not on the ground under the object
            if len(local):
                assert surface_distance(actor, local).max() < 0.05
                checked += len(local)
    assert checked > 1000


def surface_distance(actor: Actor, points: np.ndarray) -> np.ndarray:
    """(n,) distance of points (n, 3) of the actor's frame to the nearest face of its parts, m."""
    distances = []
    for corners in actor.shape.corners:
        planes = []
        for a, b, c in ((0, 2, 1), (4, 5, 6), (0, 1, 5), (1, 2, 6), (2, 3, 7), (3, 0, 4)):
            normal = np.cross(corners[b] - corners[a], corners[c] - corners[a])
            normal /= np.linalg.norm(normal)
            planes.append((points - corners[a]) @ normal)
        distances.append(np.abs(np.max(planes, axis=0)))
    return np.min(distances, axis=0)


def test_boxes_project_onto_the_pixels_of_their_objects(nusc, scenes, synth_root):
    tight = 0
    for sample in nusc.sample[2::6]:
        for channel in CAMERAS:
            row = nusc.get("sample_data", sample["data"][channel])
            name = nusc.get("scene", sample["scene_token"])["name"]
            scene = next(scene for scene in scenes if scene.name == name)
            camera = next(sensor for sensor in scene.sensors if sensor.name == channel)
            picture = take_picture(scene, camera, row["timestamp"] - scene.start)
            path, boxes, intrinsic = nusc.get_sample_data(
                row["token"], box_vis_level=BoxVisibility.ANY
            )
            stored = cv2.imread(path)[..., ::-1]
            assert (
                np.abs(stored.astype(int) - picture.image).mean() < 4
            )  # the file shows this picture
            for box in boxes:
                corners = box.corners()
                if corners[2].min() < 0.5:
                    continue
                _, index = actor_of(scenes, nusc, nusc.get("sample_annotation", box.token))
                mask = picture.actors == index
                pixels = np.argwhere(mask)[:, ::-1]
                if not len(pixels):
                    continue
                hull = cv2.convexHull(
                    view_points(corners, intrinsic, True)[:2].T.astype(np.float32)
                )
                for u, v in pixels[:: max(1, len(pixels) // 50)]:
                    assert cv2.pointPolygonTest(hull, (float(u), float(v)), True) > -0.6
                low, high = hull[:, 0].min(axis=0), hull[:, 0].max(axis=0)
                whole = (low > 0).all() and (high < np.array([319, 179])).all()
                if whole and len(pixels) == picture.outlines[index] and (high - low).min() > 8:
                    # The shape touches its box in height and along its sides.
                    assert abs(pixels[:, 1].min() - low[1]) < 0.12 * (high - low)[1] + 1.5
                    assert abs(pixels[:, 1].max() - high[1]) < 0.12 * (high - low)[1] + 1.5
                    spread = np.ptp(pixels[:, 0]) + 1
                    assert spread > 0.6 * (high - low)[0] - 2
                    tight += 1
    assert tight > 10


def test_visibility_is_the_share_of_pixels_that_nothing_hides(nusc, scenes):
    sample = nusc.sample[3]
    scene = scenes[0]
    visible, outline = 0, 0
    for camera in scene.sensors[1:]:
        row = nusc.get("sample_data", sample["data"][camera.name])
        picture = take_picture(scene, camera, row["timestamp"] - scene.start)
        seen = picture.actors[picture.actors >= 0]
        visible = visible + np.bincount(seen, minlength=len(scene.world.actors))
        outline = outline + picture.outlines
    assert (visible <= outline).all()
    levels = set()
    for token in sample["anns"]:
        row = nusc.get("sample_annotation", token)
        _, index = actor_of(scenes, nusc, row)
        share = visible[index] / max(outline[index], 1)
        level = nusc.get("visibility", row["visibility_token"])["level"]
        low, high = map(int, level.removeprefix("v").split("-"))
        assert low / 100 <= share <= high / 100
        levels.add(level)
    assert len(levels) >= 3


def submission(nusc: NuScenes, names: list[str], folder: Path, perfect: bool) -> Path:
    """A detection result of a split: all its boxes, or nothing but one box far from everything."""
    results: dict[str, list] = {}
    for sample in nusc.sample:
        if nusc.get("scene", sample["scene_token"])["name"] not in names:
            continue
        results[sample["token"]] = boxes = []
        for token in sample["anns"]:
            row = nusc.get("sample_annotation", token)
            if row["num_lidar_pts"] == 0:  # the devkit leaves these out of the ground truth
                continue
            attributes = [nusc.get("attribute", t)["name"] for t in row["attribute_tokens"]]
            boxes.append(
                {
                    "sample_token": sample["token"],
                    "translation": row["translation"],
                    "size": row["size"],
                    "rotation": row["rotation"],
                    "velocity": nusc.box_velocity(token)[:2].tolist(),
                    "detection_name": category_to_detection_name(row["category_name"]),
                    "detection_score": 0.5,
                    "attribute_name": attributes[0] if attributes else "",
                }
            )
    if not perfect:  # the devkit cannot read a file without any box
        first = next(iter(results))
        far = {**results[first][0], "translation": [-1000.0, -1000.0, 0.0]}
        results = {token: [far] if token == first else [] for token in results}
    modalities = ("use_camera", "use_lidar", "use_radar", "use_map", "use_external")
    path = folder / f"results_{perfect}.json"
    path.write_text(json.dumps({"meta": dict.fromkeys(modalities, False), "results": results}))
    return path


@pytest.mark.parametrize("split, names", [("mini_train", mini_train), ("mini_val", mini_val)])
def test_detection_eval_gives_one_to_a_perfect_submission_and_zero_to_an_empty_one(
    nusc, tmp_path, split, names
):
    config = config_factory("detection_cvpr_2019")
    scores = {}
    for perfect in (True, False):
        path = submission(nusc, names, tmp_path, perfect)
        evaluation = DetectionEval(nusc, config, str(path), split, str(tmp_path), verbose=False)
        metrics, _ = evaluation.evaluate()
        scores[perfect] = metrics
    assert scores[True].mean_ap == pytest.approx(1.0, abs=1e-6)
    assert scores[True].nd_score == pytest.approx(1.0, abs=1e-6)
    assert set(scores[True].mean_dist_aps) == set(CLASSES)
    assert scores[False].mean_ap == 0.0


@pytest.mark.parametrize("location", LOCATIONS)
def test_map_expansion_is_read_with_all_its_layers(synth_root, location):
    nusc_map = NuScenesMap(str(synth_root), location)
    for layer in LAYERS:
        if (
            layer != "lane_divider" or nusc_map.lane_divider
        ):  # none on a road with one lane each way
            assert getattr(nusc_map, layer), layer
    width, height = nusc_map.canvas_edge
    centre = width / 2, height / 2
    found = nusc_map.get_records_in_radius(*centre, 500, LAYERS)
    for layer in LAYERS:
        assert len(found[layer]) == len(getattr(nusc_map, layer)), layer
    patch = (*centre, height, width)
    names = [*nusc_map.non_geometric_polygon_layers, "road_divider"]
    mask = nusc_map.get_map_mask(patch, 0, names, (400, 400))
    assert (mask.reshape(len(names), -1).sum(axis=1) > 0).all()
    for record in nusc_map.polygon:
        polygon = nusc_map.extract_polygon(record["token"])
        assert polygon.is_valid and polygon.area > 0.3
    for record in nusc_map.line:
        assert nusc_map.extract_line(record["token"]).length > 0.5
    for (
        connector
    ) in nusc_map.lane_connector:  # every way over a junction leads from a lane to a lane
        for ends in nusc_map.connectivity[connector["token"]].values():
            assert len(ends) == 1
    points = nusc_map.discretize_lanes([lane["token"] for lane in nusc_map.lane], 1.0)
    for token, poses in points.items():
        for after in nusc_map.get_outgoing_lane_ids(token):
            start = nusc_map.get_arcline_path(after)[0]["start_pose"]
            np.testing.assert_allclose(poses[-1][:2], start[:2], atol=0.02)
            assert np.cos(poses[-1][2] - start[2]) > 0.999


def test_ego_drives_on_its_lane_of_the_map(nusc, synth_root):
    for scene in nusc.scene:
        location = nusc.get("log", scene["log_token"])["location"]
        nusc_map = NuScenesMap(str(synth_root), location)
        lanes = 0
        map_token = nusc.get("log", scene["log_token"])["map_token"]
        mask = nusc.get("map", map_token)["mask"]
        for sample in chain(nusc, "sample", scene["first_sample_token"]):
            data = nusc.get("sample_data", sample["data"]["LIDAR_TOP"])
            pose = nusc.get("ego_pose", data["ego_pose_token"])
            x, y, _ = pose["translation"]
            assert mask.is_on_mask(x, y).all()
            on = nusc_map.layers_on_point(x, y)
            assert on["drivable_area"] and on["road_segment"]
            lanes += on["lane"] != ""
            lane = nusc_map.get_closest_lane(x, y, radius=2)
            poses = np.array(nusc_map.discretize_lanes([lane], 0.2)[lane])
            nearest = poses[np.argmin(np.hypot(*(poses[:, :2] - [x, y]).T))]
            assert np.hypot(*(nearest[:2] - [x, y])) < 0.2
            yaw = Quaternion(pose["rotation"]).yaw_pitch_roll[0]
            assert np.cos(nearest[2] - yaw) > 0.999
        assert lanes > 0 and mask.mask().mean() < 60  # most of the map is neither road nor walkway


def test_can_bus_is_read_and_agrees_with_the_poses(nusc, synth_root):
    api = NuScenesCanBus(str(synth_root))
    for scene in nusc.scene:
        name = scene["name"]
        for kind in api.all_messages:
            assert api.get_messages(name, kind, print_warnings=False)
        messages = api.get_messages(name, "pose")
        utimes = np.array([message["utime"] for message in messages])
        assert set(np.diff(utimes)) == {20_000}
        samples = chain(nusc, "sample", scene["first_sample_token"])
        assert (
            utimes[0] < samples[0]["timestamp"] - 43_100 and utimes[-1] > samples[-1]["timestamp"]
        )
        position = np.array([message["pos"] for message in messages])
        velocity = np.array([message["vel"] for message in messages])
        forward = np.array([Quaternion(m["orientation"]).rotate([1, 0, 0]) for m in messages])
        measured = (position[2:] - position[:-2]) / 0.04
        np.testing.assert_allclose(measured, forward[1:-1] * velocity[1:-1, :1], atol=0.02)
        rate = np.array([message["rotation_rate"][2] for message in messages])
        yaw = np.unwrap(np.arctan2(forward[:, 1], forward[:, 0]))
        turned = np.cumsum(rate[:-1] + rate[1:]) / 2 * 0.02
        np.testing.assert_allclose(yaw[1:] - yaw[0], turned, atol=0.01)
        acceleration = np.array([message["accel"] for message in messages])
        gained = (velocity[2:, 0] - velocity[:-2, 0]) / 0.04
        np.testing.assert_allclose(acceleration[1:-1, 0], gained, atol=1e-3)
        np.testing.assert_allclose(acceleration[:, 1], velocity[:, 0] * rate, atol=1e-6)
        for sample in samples:
            data = nusc.get("sample_data", sample["data"]["LIDAR_TOP"])
            pose = nusc.get("ego_pose", data["ego_pose_token"])
            at = [np.interp(sample["timestamp"], utimes, position[:, k]) for k in range(3)]
            np.testing.assert_allclose(at, pose["translation"], atol=0.01)
        speeds = [m["vehicle_speed"] / 3.6 for m in api.get_messages(name, "vehicle_monitor")]
        assert min(speeds) > 5 and max(speeds) < 12
        route, poses = api.get_pose_and_route(name, print_warnings=False)
        nearest = np.hypot(*(poses[:, None] - route[None]).transpose(2, 0, 1)).min(axis=1)
        assert nearest.max() < 1.0


def test_points_of_a_sweep_between_key_frames_lie_on_the_objects_of_its_own_time(
    nusc, scenes, synth_root
):
    scene = scenes[1]
    record = nusc.get("scene", nusc.scene[1]["token"])
    first = nusc.get("sample", record["first_sample_token"])
    data = chain(nusc, "sample_data", first["data"]["LIDAR_TOP"])[5]
    assert not data["is_key_frame"]
    points = np.fromfile(synth_root / data["filename"], np.float32).reshape(-1, 5)[:, :3]
    for table, token in (
        ("calibrated_sensor", data["calibrated_sensor_token"]),
        ("ego_pose", data["ego_pose_token"]),
    ):
        pose = nusc.get(table, token)
        points = points @ Quaternion(pose["rotation"]).rotation_matrix.T + pose["translation"]
    t = (data["timestamp"] - scene.start) * 1e-6
    above = points[points[:, 2] > 0.1]
    explained = np.zeros(len(above), int)
    for actor in scene.world.actors:
        x, y, yaw = actor.pose(t)
        cos, sin = np.cos(yaw), np.sin(yaw)
        local = (above[:, :2] - [x, y]) @ np.array([[cos, -sin], [sin, cos]])
        inside = (np.abs(local) < np.array([actor.size[1], actor.size[0]]) / 2 + 0.05).all(axis=1)
        explained[inside] = 1 if actor.motion == STILL else 2
    assert (explained > 0).all()
    assert (np.bincount(explained)[1:] > 200).all()
