"""Pictures: boxes are where geometry says, in cameras and from above."""

import cv2
import numpy as np
import pytest
from matplotlib import pyplot as plt

from autodrive.data.classes import CAMERAS, CLASSES
from autodrive.viz.bev import bev_picture
from autodrive.viz.boxes import EDGES, SceneBoxes, corners
from autodrive.viz.cameras import LEGEND_HEIGHT, NEAR, camera_picture, draw_boxes, project_segment
from autodrive.viz.colors import CLASS_COLORS, bgr

W, H, FOCAL = 320, 180, 200.0
# A camera at the lidar, looking forward (lidar y): image x = lidar x, image y = -lidar z.
FORWARD = np.array(
    [[FOCAL, W / 2, 0, 0], [0, H / 2, -FOCAL, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=float
)


def box(x=0.0, y=10.0, bottom=-1.0, length=4.0, width=2.0, height=2.0, yaw=np.pi / 2, v=(0, 0)):
    return np.array([[x, y, bottom, length, width, height, yaw, *v]])


def test_corners_by_hand():
    """A box that heads forward (yaw 90°): the front is at larger y, the left side at smaller x."""
    found = corners(box(x=1, y=10, bottom=-1, length=4, width=2, height=3))[0]
    assert found[:2, 1] == pytest.approx([12, 12]) and found[2:4, 1] == pytest.approx([8, 8])
    assert found[:4, 0] == pytest.approx([0, 2, 2, 0])
    assert found[:4, 2] == pytest.approx([-1] * 4) and found[4:, 2] == pytest.approx([2] * 4)
    lengths = sorted(np.linalg.norm(found[a] - found[b]) for a, b in EDGES)
    assert lengths == pytest.approx([2] * 4 + [3] * 4 + [4] * 4)


def test_corners_agree_with_mmdet3d():
    from mmdet3d.structures import LiDARInstance3DBoxes

    rng = np.random.default_rng(0)
    boxes = rng.uniform(0.5, 4, (20, 9))
    expected = LiDARInstance3DBoxes(boxes, box_dim=9).corners.numpy()
    for ours, theirs in zip(corners(boxes), expected):
        ours, theirs = (c[np.lexsort(c.round(3).T)] for c in (ours, theirs))
        assert ours == pytest.approx(theirs, abs=1e-4)


def test_segment_in_front_projects_as_a_pinhole():
    start, end = project_segment(np.array([1, 10, 2]), np.array([-1, 20, 0]), FORWARD)
    assert start == (W / 2 + 20, H / 2 - 40) and end == (W / 2 - 10, H / 2)


def test_segment_through_the_camera_plane_is_cut_there():
    ahead, behind = np.array([1.0, 5.0, 0.5]), np.array([1.0, -5.0, 0.5])
    start, end = project_segment(ahead, behind, FORWARD)
    assert start == (W / 2 + 40, H / 2 - 20)
    assert end == (W / 2 + FOCAL / NEAR, H / 2 - FOCAL * 0.5 / NEAR)  # of the point at y = NEAR
    assert project_segment(behind, ahead, FORWARD) == (end, start)


def test_segment_behind_the_camera_is_not_drawn():
    assert project_segment(np.array([1, -1, 0]), np.array([2, -5, 0]), FORWARD) is None


def test_ends_far_outside_do_not_overflow():
    line = project_segment(np.array([1e9, 0.2, 0]), np.array([0, 10, 0]), FORWARD)
    assert all(abs(value) <= 1e6 for end in line for value in end)


def drawn(scene: SceneBoxes, dashed: bool = False) -> np.ndarray:
    image = np.zeros((H, W, 3), np.uint8)
    draw_boxes(image, FORWARD, scene, dashed)
    return image


def test_box_covers_its_projection():
    image = drawn(SceneBoxes(box(x=0, y=10), ["car"]))
    rows, columns = np.nonzero(image.any(-1))
    near = FOCAL / 8  # the back face is 8 m away, 1 m to each side and up and down
    assert (columns.min(), columns.max()) == pytest.approx((W / 2 - near, W / 2 + near), abs=2)
    assert (rows.min(), rows.max()) == pytest.approx((H / 2 - near, H / 2 + near), abs=2)
    brightest = image.reshape(-1, 3)[image.reshape(-1, 3).sum(1).argmax()]
    assert tuple(brightest) == bgr("car")


def test_box_behind_the_camera_leaves_no_mark():
    assert not drawn(SceneBoxes(box(y=-10), ["car"])).any()


def test_box_around_the_camera_is_cut_and_not_mirrored():
    """The ego stands in a long box below it: only lines below the horizon, none of the part behind."""
    scene = SceneBoxes(box(y=0, length=20, width=4, bottom=-2, height=1), ["bus"])
    rows, _ = np.nonzero(drawn(scene).any(-1))
    assert len(rows) and rows.min() > H / 2


def test_ground_truth_is_dashed_white():
    scene = SceneBoxes(box(), ["car"])
    dashed, solid = drawn(scene, dashed=True), drawn(scene)
    assert 0.3 < np.count_nonzero(dashed.any(-1)) / np.count_nonzero(solid.any(-1)) < 0.9
    assert (dashed[dashed.any(-1)].std(axis=-1) == 0).all()


def test_scores_select_predictions():
    from mmdet3d.structures import LiDARInstance3DBoxes
    from mmengine.structures import InstanceData
    from torch import tensor

    found = InstanceData(
        bboxes_3d=LiDARInstance3DBoxes(np.repeat(box(), 3, 0), box_dim=9),
        scores_3d=tensor([0.9, 0.1, 0.25]),
        labels_3d=tensor([0, 1, 8]),
    )
    scene = SceneBoxes.of(found, min_score=0.25)
    assert list(scene.names) == ["car", "pedestrian"] and len(scene.boxes) == 2


def test_mosaic_shows_every_camera_with_its_boxes_in_its_place(tmp_path):
    colors = {name: (40 * i + 20, 0, 0) for i, name in enumerate(CAMERAS)}
    for name, color in colors.items():
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full((H, W, 3), color, np.uint8))
    paths = [str(tmp_path / f"{name}.png") for name in CAMERAS]
    # Only the front camera looks at the box; the others look the other way.
    projections = [
        FORWARD if name == "CAM_FRONT" else FORWARD @ np.diag([-1, -1, 1, 1]) for name in CAMERAS
    ]
    scene = SceneBoxes(box(), ["car"])
    picture = camera_picture(paths, np.stack(projections), scene, width=3 * W)
    assert picture.shape == (2 * H + LEGEND_HEIGHT, 3 * W, 3)
    order = [["FRONT_LEFT", "FRONT", "FRONT_RIGHT"], ["BACK_RIGHT", "BACK", "BACK_LEFT"]]
    for r, row in enumerate(order):
        for c, name in enumerate(row):
            tile = picture[r * H : (r + 1) * H, c * W : (c + 1) * W]
            assert tuple(tile[-5, 5]) == colors[f"CAM_{name}"]
            has_box = np.abs(tile[60:120].astype(int) - colors[f"CAM_{name}"]).max() > 50
            assert has_box == (name == "FRONT")


def test_bev_shows_predictions_truth_points_and_ego():
    predicted = SceneBoxes(box(x=-5, y=20, v=(0, 3)), ["truck"], np.array([0.9]))
    truth = SceneBoxes(box(x=5, y=-20), ["pedestrian"])
    figure = bev_picture(predicted, truth, np.array([[0, 30, 0, 0, 0]]), title="frame")
    (axes,) = figure.axes
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["pedestrian", "truck", "ground truth"] and axes.get_title() == "frame"
    fills = [patch.get_xy() for patch in axes.patches if hasattr(patch, "get_xy")]
    centers = [tuple(xy[:4].mean(0).round(3)) for xy in fills]
    assert (5.0, -20.0) in centers and (0.0, 0.0) in centers
    outline, heading, velocity = (line.get_xydata() for line in axes.lines)
    assert outline[:4].mean(0) == pytest.approx([-5, 20])
    assert heading[1] == pytest.approx([-5, 22]) and velocity[1] == pytest.approx([-5, 23])
    plt.close(figure)


def test_bev_of_nothing_is_a_picture():
    figure = bev_picture()
    assert figure.axes
    plt.close(figure)


def test_every_class_has_its_own_colour():
    assert len({bgr(name) for name in CLASSES}) == len(CLASSES) == len(CLASS_COLORS)
    assert bgr("car") == (0xB4, 0x77, 0x1F)


def test_mosaic_ends_with_the_colour_of_every_class(tmp_path):
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((H, W, 3), np.uint8))
    picture = camera_picture([str(tmp_path / "a.png")] * 6, np.stack([FORWARD] * 6))
    strip = picture[-LEGEND_HEIGHT:].reshape(-1, 3)
    assert {bgr(name) for name in CLASSES} <= set(map(tuple, strip.tolist()))
