"""The scene from above."""

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from .boxes import SceneBoxes, corners
from .colors import CLASS_COLORS

EGO_LENGTH, EGO_WIDTH = 4.1, 1.7  # m, the car that recorded nuScenes


def bev_picture(
    predicted: SceneBoxes | None = None,
    truth: SceneBoxes | None = None,
    points: np.ndarray | None = None,
    extent: float = 51.2,
    title: str = "",
) -> Figure:
    """Predictions (outlines with a line to the front, dotted: the way of one second) over ground truth (filled).

    Args:
        points: (N, 3 or more) lidar points, m.
        extent: half the side of the picture, m; the lidar frame's x is right, y is forward.
    """
    figure, axes = plt.subplots(figsize=(7, 7), dpi=110)
    for radius in range(10, int(extent * 1.42), 10):
        axes.add_patch(plt.Circle((0, 0), radius, fill=False, color="#e4e4e4", lw=0.7, zorder=0))
    if points is not None:
        axes.scatter(points[:, 0], points[:, 1], s=0.15, c="#9a9a9a", alpha=0.5, lw=0, zorder=1)
    if truth is not None:
        for box, name in zip(corners(truth.boxes), truth.names):
            fill = to_rgba(CLASS_COLORS[name], 0.3)
            axes.fill(*box[:4, :2].T, fc=fill, ec="#606060", lw=0.5, zorder=2)
    if predicted is not None:
        for row, box, name in zip(predicted.boxes, corners(predicted.boxes), predicted.names):
            floor = box[:4, :2]
            center, front = floor.mean(0), floor[:2].mean(0)
            color = CLASS_COLORS[name]
            axes.plot(*np.vstack([floor, floor[:1]]).T, color=color, lw=1.3, zorder=3)
            axes.plot(*np.stack([center, front]).T, color=color, lw=1.3, zorder=3)
            axes.plot(*np.stack([center, center + row[7:9]]).T, color=color, lw=0.7, ls=":")
    ego = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) * [EGO_WIDTH / 2, EGO_LENGTH / 2]
    axes.fill(*ego.T, color="black", zorder=4)
    names = sorted({*(predicted.names if predicted else ()), *(truth.names if truth else ())})
    handles = [plt.Line2D([], [], color=CLASS_COLORS[n], label=n.replace("_", " ")) for n in names]
    if truth is not None:
        handles.append(
            plt.Rectangle((0, 0), 1, 1, fc="#d9d9d9", ec="#606060", label="ground truth")
        )
    axes.legend(handles=handles, fontsize=7, loc="upper right", framealpha=0.9)
    axes.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal", title=title)
    axes.set(xlabel="right, m", ylabel="forward, m")
    figure.tight_layout()
    return figure
