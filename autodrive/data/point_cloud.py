"""nuScenes point clouds: files `.pcd.bin` of float32 rows (x, y, z, intensity, ring)."""

from pathlib import Path

import numpy as np

NUM_FEATURES = 5
ROW_BYTES = 4 * NUM_FEATURES


def read_points(path: str | Path) -> np.ndarray:
    """A sweep as (N, 5) float32: x, y, z in m (lidar frame), intensity 0...255, ring.

    Raises:
        FileNotFoundError, ValueError: naming the file, its size, and that it must be a multiple of 20 bytes, not 0.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"point cloud {path} does not exist")
    content = path.read_bytes()
    if not content or len(content) % ROW_BYTES:
        raise ValueError(
            f"point cloud {path} is damaged: {len(content)} bytes, expected a multiple of {ROW_BYTES} "
            f"({NUM_FEATURES} float32 a point) and at least one point"
        )
    points = np.frombuffer(content, dtype=np.float32).reshape(-1, NUM_FEATURES)
    if not points.any():
        raise ValueError(f"point cloud {path} is damaged: {len(points)} points, all zero")
    return points.copy()
