"""How the loss fell."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

SMOOTHING = 0.05  # part of the curve that a moving average covers


def read_losses(path: str | Path) -> list[dict[str, float]]:
    """The rows of a `losses.jsonl`."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def loss_picture(rows: list[dict[str, float]]) -> Figure:
    """Total, class and box loss of the last decoder layer over iterations, thin as they were and thick smoothed."""
    figure, axes = plt.subplots(figsize=(8, 4), dpi=110)
    steps = np.array([row["iter"] for row in rows])
    width = max(1, int(len(rows) * SMOOTHING))
    for index, name in enumerate(("loss", "loss_cls", "loss_bbox")):
        values = np.array([row.get(name, np.nan) for row in rows])
        if np.isnan(values).all():
            continue
        axes.plot(steps, values, color=f"C{index}", lw=0.5, alpha=0.35)
        smooth = np.convolve(values, np.ones(width) / width, mode="valid")
        middle = steps[(width - 1) // 2 :][: len(smooth)]
        axes.plot(middle, smooth, color=f"C{index}", lw=1.8, label=name)
    axes.set(xlabel="iteration", ylabel="loss", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    return figure
