"""Voxels of points with a dictionary, in the order of the points."""

import numpy as np


def cells(points, size, bounds):
    """(N, 3) cells as (z, y, x), -1 for points outside; in the floating type of `points`."""
    size, bounds = np.float32(size), np.float32(bounds)
    count = np.rint((bounds[3:] - bounds[:3]) / size)
    with np.errstate(invalid="ignore"):
        cell = np.floor((points[:, :3] - bounds[:3]) / size)
        inside = ((cell >= 0) & (cell < count)).all(1)
    return np.where(inside[:, None], np.nan_to_num(cell), -1)[:, ::-1].astype(np.int32)


def voxels(points, size, bounds, max_points, max_voxels):
    found = {}
    for point, cell in zip(points, cells(points, size, bounds).tolist()):
        if cell[0] < 0 or (tuple(cell) not in found and len(found) >= max_voxels):
            continue
        members = found.setdefault(tuple(cell), [])
        if len(members) < max_points:
            members.append(point)
    result = np.zeros((len(found), max_points, points.shape[1]), points.dtype)
    for row, members in zip(result, found.values()):
        row[: len(members)] = np.reshape(members, (-1, points.shape[1]))
    coors = np.array(list(found), np.int32).reshape(-1, 3)
    return result, coors, np.array([len(members) for members in found.values()], np.int32)
