"""A tiny synthetic dataset that all tests of the data and engine parts share."""

import os
from pathlib import Path

import pytest

from autodrive.data.synth import write_dataset


@pytest.fixture(scope="session")
def synth_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a v1.0-mini with one scene of mini_train and one of mini_val: 3 s, 320x180 px. Not to be changed."""
    root = tmp_path_factory.mktemp("synth") / "nuscenes"
    workers = min(2, os.cpu_count() or 1)
    write_dataset(root, 2, 0, (320, 180), duration=3.0, workers=workers, progress=False)
    return root
