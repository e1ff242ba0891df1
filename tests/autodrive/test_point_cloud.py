"""Reading sweeps."""

import numpy as np
import pytest

from autodrive.data.point_cloud import read_points


def test_rows_of_five_floats_are_read(tmp_path):
    points = np.random.default_rng(0).random((7, 5), dtype=np.float32)
    path = tmp_path / "a.pcd.bin"
    points.tofile(path)
    found = read_points(path)
    np.testing.assert_array_equal(found, points)
    found[0] = 0  # callers may change what they get


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\1" * 47, "47 bytes, expected a multiple of 20"),
        (b"", "0 bytes, expected a multiple of 20"),
        (bytes(200), "10 points, all zero"),
    ],
    ids=["truncated", "empty", "zeros"],
)
def test_damaged_file_is_named_with_its_size(tmp_path, content, problem):
    """K46"""
    path = tmp_path / "a.pcd.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"a.pcd.bin is damaged: {problem}"):
        read_points(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.pcd.bin does not exist"):
        read_points(tmp_path / "none.pcd.bin")
