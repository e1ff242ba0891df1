"""The simulated world behind the synthetic dataset, and how the dataset is written."""

import argparse
import hashlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from nuscenes.can_bus.can_bus_api import NuScenesCanBus
from nuscenes.eval.common.config import config_factory
from nuscenes.eval.detection.utils import category_to_detection_name
from nuscenes.utils import splits
from scipy.spatial import ConvexHull
from shapely.geometry import Point, Polygon
from shapely.strtree import STRtree

from autodrive.data import synth
from autodrive.data.classes import CLASSES
from autodrive.data.synth import plan, scene_names, write_dataset
from autodrive.data.synth.cameras import clip_near
from autodrive.data.synth.curve import Curve, turn
from autodrive.data.synth.map_expansion import MapExpansion
from autodrive.data.synth.solids import intersect, solids_at
from autodrive.data.synth.world import STILL, World


def footprint(pose: np.ndarray, width: float, length: float, ahead: float = 0.0) -> Polygon:
    x, y, yaw = pose
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * [length / 2, width / 2] + [ahead, 0]
    cos, sin = np.cos(yaw), np.sin(yaw)
    return Polygon(corners @ np.array([[cos, sin], [-sin, cos]]) + [x, y])


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [scene.world for seed in (0, 1, 2) for scene in plan(4, seed, (320, 180), 20.0)[1]]


def test_nothing_overlaps_at_any_time(worlds):
    for world in worlds:
        for t in np.arange(0.0, world.duration, 2.5):
            poses, present = world.poses(t)
            boxes = [
                footprint(pose, *actor.size[:2])
                for pose, actor, here in zip(poses, world.actors, present, strict=True)
                if here
            ]
            assert len(boxes) > 100
            boxes.append(footprint(world.ego.pose(t), 1.73, 4.1, ahead=1.0))
            a, b = STRtree(boxes).query(boxes, predicate="intersects")
            assert (a == b).all()


def test_every_class_is_within_its_evaluation_range_in_nearly_every_frame(worlds):
    ranges = config_factory("detection_cvpr_2019").class_range
    frames, shown, total = 0, Counter(), Counter()
    for world in worlds:
        in_scene = Counter()
        for t in np.arange(0.0, world.duration, 0.5):
            poses, present = world.poses(t)
            distance = np.hypot(*(poses - world.ego.pose(t))[:, :2].T)
            names = [category_to_detection_name(actor.category) for actor in world.actors]
            near = Counter(n for n, d, p in zip(names, distance, present) if p and d < ranges[n])
            frames += 1
            shown.update(near.keys())
            total.update(near)
            in_scene.update(near)
        assert set(in_scene) == set(CLASSES)
    for name in CLASSES:
        assert shown[name] / frames > 0.9, (name, shown[name] / frames)
        assert total[name] / frames > 1.5
    assert 30 < sum(total.values()) / frames < 80


def test_ego_keeps_to_city_speeds_and_turns(worlds):
    t = np.linspace(0, 20, 401)
    for world in worlds:
        speed = world.ego.motion.speed_at(t)
        assert speed.min() > 5 and speed.max() < 12
        lateral = np.abs(speed * world.ego.yaw_rate(t))
        assert lateral.max() < 3  # m/s², comfortable
    turned = [np.ptp(world.ego.pose(t)[:, 2]) for world in worlds]
    assert np.mean(np.array(turned) > np.radians(20)) > 0.8


def test_ego_and_traffic_stay_on_the_drivable_area(worlds):
    for world in worlds[:4]:
        area = [Polygon(polygon) for polygon, _ in world.road_map.segments]
        tree = STRtree(area)
        for t in (0.0, 7.3, 15.1):
            poses, present = world.poses(t)
            for actor, pose, here in zip(world.actors, poses, present, strict=True):
                if here and actor.category.startswith("vehicle."):
                    assert len(tree.query(Point(pose[:2]), predicate="dwithin", distance=0.1))
            assert len(tree.query(Point(world.ego.pose(t)[:2]), predicate="intersects"))


def test_scenes_differ_and_seeds_differ():
    scenes = [scene for seed in (0, 1) for scene in plan(2, seed, (320, 180), 5.0)[1]]
    curves = {scene.world.ego.curve for scene in scenes}
    assert len(curves) == 4


def test_names_follow_the_official_splits_and_one_in_five_scenes_is_for_validation(tmp_path):
    (tmp_path / "can_bus").mkdir()
    blacklist = set(NuScenesCanBus(str(tmp_path)).can_blacklist)
    for count, for_val in ((1, 0), (2, 1), (5, 1), (10, 2)):
        version, names = scene_names(count)
        assert version == "v1.0-mini" and len(set(names)) == count
        assert [name in splits.mini_val for name in names].count(True) == for_val
        assert set(names) <= {*splits.mini_train, *splits.mini_val}
    for count, for_val in ((11, 2), (25, 5), (300, 60)):
        version, names = scene_names(count)
        assert version == "v1.0-trainval" and len(set(names)) == count
        assert [name in splits.val for name in names].count(True) == for_val
        assert set(names) <= {*splits.train, *splits.val}
        assert not blacklist & {int(name[-4:]) for name in names}
    with pytest.raises(ValueError, match="scenes must be at most"):
        scene_names(5000)


def digests(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(f.relative_to(root)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def test_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path):
    found = []
    for workers in (1, 2):
        root = tmp_path / str(workers)
        write_dataset(root, 1, 3, (96, 64), 2.5, workers, progress=False)
        found.append(digests(root))
    assert len(found[0]) > 70
    assert found[0] == found[1]


def test_existing_folder_is_kept_unless_overwriting(tmp_path):
    kept = tmp_path / "data" / "mine.txt"
    kept.parent.mkdir()
    kept.write_text("x")
    with pytest.raises(FileExistsError, match=str(tmp_path / "data")):
        write_dataset(tmp_path / "data", 1, image_size=(64, 48), duration=1)
    assert kept.read_text() == "x"
    write_dataset(tmp_path / "data", 1, 0, (64, 48), 1.0, workers=1, overwrite=True, progress=False)
    assert not kept.exists() and (tmp_path / "data" / "v1.0-mini" / "scene.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_interrupted_writing_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(synth, "make_tables", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / "data", 1, 0, (64, 48), 1.0, workers=1, progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"scenes": 0}, "scenes must be at least 1, got 0"),
        ({"image_size": (16, 900)}, "image_size must be at least 32x32, got 16x900"),
        ({"duration": 0.4}, "duration must be from 1 to 20 s, got 0.4"),
        ({"duration": float("nan")}, "duration must be from 1 to 20 s, got nan"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        write_dataset(tmp_path / "data", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_command_line_reads_the_image_size(capsys):
    parser = argparse.ArgumentParser()
    synth.add_arguments(parser)
    assert parser.parse_args(["--out", "x"]).image_size == (800, 450)
    assert parser.parse_args(["--out", "x", "--image-size", "320x180"]).image_size == (320, 180)
    with pytest.raises(SystemExit):
        parser.parse_args(["--out", "x", "--image-size", "320"])
    assert "expected WxH" in capsys.readouterr().err


def test_curve_of_a_quarter_circle():
    curve = Curve((1.0, 2.0, 0.0), (10.0, 5 * np.pi), (0.0, 0.1))
    np.testing.assert_allclose(curve.pose(10.0), [11, 2, 0], atol=1e-12)
    np.testing.assert_allclose(curve.pose(curve.length), [21, 12, np.pi / 2], atol=1e-12)
    outer = curve.offset(-2.0)
    assert outer.length == pytest.approx(10 + 6 * np.pi)
    np.testing.assert_allclose(outer.pose(outer.length), [23, 12, np.pi / 2], atol=1e-12)
    back = curve.reversed()
    np.testing.assert_allclose(back.pose(back.length)[:2], [1, 2], atol=1e-12)
    part = curve.section(5.0, 15.0)
    np.testing.assert_allclose(part.pose(np.array([0, 7, 10])), curve.pose(np.array([5, 12, 15])))
    assert part.lengths == pytest.approx((5.0, 5.0))


@pytest.mark.parametrize("left", [8.0, -8.0, 3.0, -20.0])
def test_turn_ends_at_the_pose_asked_for(left):
    start = np.array([3.0, -1.0, 0.7])
    cos, sin = np.cos(0.7), np.sin(0.7)
    end = np.array(
        [3 + 8 * cos - left * sin, -1 + 8 * sin + left * cos, 0.7 + np.sign(left) * np.pi / 2]
    )
    curve = turn(start, end)
    np.testing.assert_allclose(curve.pose(curve.length), end, atol=1e-9)


def test_rays_meet_solids_where_their_convex_hulls_are(worlds):
    world = worlds[0]
    origin = np.array([*world.ego.pose(0.0)[:2], 1.7])
    solids = solids_at(world, 0.0, origin[:2], 30.0)
    rng = np.random.default_rng(0)
    hits = misses = 0
    for p in range(len(solids)):
        hull = ConvexHull(solids.corners[p])
        target = solids.corners[p].mean(axis=0) - origin
        across = rng.standard_normal((3, 2))
        frame = np.linalg.qr(np.column_stack([target, across]))[0][:, [1, 2, 0]]  # z to the part
        frame[:, 2] *= np.sign(frame[:, 2] @ target)
        extent = hull.volume ** (1 / 3) / np.linalg.norm(target)
        x, y = (rng.uniform(-extent, extent, n).astype(np.float32) for n in (12, 9))
        _, planes, facing = solids.seen_from(frame, origin)
        a, b, c = planes[p].astype(np.float32).T[..., None, None]
        nearest, face = np.zeros((9, 12), np.float32), np.zeros((9, 12), np.int32)
        intersect(b * y[:, None], a * x + c, facing[p], 6 * p, nearest, face)
        for (i, j), found in np.ndenumerate(nearest):
            depth, margin = first_hit(hull, origin, frame @ [x[j], y[i], 1.0])
            if margin > 1e-3:  # well inside or outside of the outline
                assert found == pytest.approx(1 / depth if depth else 0.0, rel=1e-4, abs=1e-6)
                hits += depth > 0
                misses += depth == 0
            if found:
                k = face[i, j] - 6 * p
                assert planes[p, k] @ [x[j], y[i], 1.0] == pytest.approx(found, rel=1e-4)
    assert hits > 3000 and misses > 3000


def first_hit(hull: ConvexHull, origin: np.ndarray, ray: np.ndarray) -> tuple[float, float]:
    """Where a ray enters a hull (in lengths of `ray`, 0 if it misses), and how far the ray is from just touching it."""
    slope, offset = (
        hull.equations[:, :3] @ ray,
        hull.equations[:, :3] @ origin + hull.equations[:, 3],
    )
    near = np.max(-offset[slope < 0] / slope[slope < 0])
    far = np.min(-offset[slope > 0] / slope[slope > 0])
    return (near if 0 < near < far else 0.0), abs(far - near) / abs(near)


def test_polygons_are_clipped_in_front_of_the_camera():
    square = np.array([[-1.0, 1, -1], [1, 1, -1], [1, 1, 3], [-1, 1, 3]])
    clipped = clip_near(square)
    assert clipped[:, 2].min() == pytest.approx(0.1) and clipped[:, 2].max() == 3
    assert len(clipped) == 4
    assert len(clip_near(square - [0, 0, 5])) == 0


def test_parked_and_moving_objects_are_both_there(worlds):
    for world in worlds:
        kinds = Counter((actor.motion == STILL, actor.category) for actor in world.actors)
        for category in ("vehicle.car", "vehicle.truck"):
            assert kinds[True, category] and kinds[False, category]


def test_drivable_area_of_every_road_map_is_one_valid_polygon():
    for seed in range(25):
        for scene in plan(2, seed, (320, 180), 10.0)[1]:
            expansion = MapExpansion(scene.location, (600.0, 600.0))
            expansion.add(scene.world.road_map)
            polygons = {polygon["token"]: polygon for polygon in expansion.layers["polygon"]}
            nodes = {node["token"]: (node["x"], node["y"]) for node in expansion.layers["node"]}
            (token,) = expansion.layers["drivable_area"][0]["polygon_tokens"]
            assert not polygons[token]["holes"]
            area = Polygon([nodes[node] for node in polygons[token]["exterior_node_tokens"]])
            roads = [Polygon(polygon) for polygon, _ in scene.world.road_map.segments]
            assert area.is_valid and all(area.buffer(0.1).contains(road) for road in roads)
            assert area.area == pytest.approx(sum(road.area for road in roads), rel=0.01)
            assert all(len(p["exterior_node_tokens"]) > 2 for p in polygons.values())
