import numpy as np
import pytest
import torch
from mmcv.ops import Voxelization, voxelization

from tests.mmcv.devices import DTYPES
from tests.mmcv.reference.voxelize import cells, voxels

SIZE, BOUNDS = [0.5, 0.25, 1.0], [-3, -2, -1, 3, 2, 1]


def make(count, dtype=torch.float32, columns=5):
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(count, columns, generator=generator) * 8 - 4
    points[:, 2] /= 3
    return points.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("max_points, max_voxels", [(2, 1000), (35, 1000), (2, 50), (1, 1), (3, 0)])
def test_hard_voxels_equal_the_reference(dtype, max_points, max_voxels):
    """K24"""
    points = make(2000, dtype)
    found = voxelization(points, SIZE, BOUNDS, max_points, max_voxels)
    exact = points.float() if dtype.itemsize == 2 else points
    expected = voxels(exact.numpy(), SIZE, BOUNDS, max_points, max_voxels)
    assert found[0].dtype == dtype
    for tensor, array in zip(found, expected):
        assert tensor.shape == array.shape
        np.testing.assert_array_equal(tensor.to(torch.float64).numpy(), array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limits", [(-1, 10), (10, -1)])
def test_dynamic_cells_equal_the_reference(dtype, limits):
    points = make(2000, dtype)
    exact = points.float() if dtype.itemsize == 2 else points
    found = voxelization(points, SIZE, BOUNDS, *limits)
    assert found.dtype == torch.int32
    np.testing.assert_array_equal(found.numpy(), cells(exact.numpy(), SIZE, BOUNDS))


def test_points_on_the_bounds_and_nan():
    points = torch.tensor(
        [[-3, -2, -1], [3, 0, 0], [0, 2, 0], [0, 0, 1], [float("nan"), 0, 0], [float("inf"), 0, 0]]
    )
    found = voxelization(points, SIZE, BOUNDS, -1, -1).tolist()
    assert found == [[0, 0, 0]] + [[-1, -1, -1]] * 5
    assert voxelization(points, SIZE, BOUNDS)[1].tolist() == [[0, 0, 0]]


def test_no_points():
    """K22"""
    kinds = voxelization(torch.zeros(0, 5), SIZE, BOUNDS, 4, 10)
    assert [tuple(x.shape) for x in kinds] == [(0, 4, 5), (0, 3), (0,)]
    assert [x.dtype for x in kinds] == [torch.float32, torch.int32, torch.int32]
    assert voxelization(torch.zeros(0, 5), SIZE, BOUNDS, -1, -1).shape == (0, 3)


def test_strided_points_equal_contiguous_ones():
    """K07"""
    points = make(500)
    strided = points.t().contiguous().t()[::2]
    for a, b in zip(
        voxelization(strided, SIZE, BOUNDS), voxelization(points[::2].clone(), SIZE, BOUNDS)
    ):
        assert torch.equal(a, b)


def test_results_are_the_same_every_time():
    """K25"""
    points = make(3000)
    first = voxelization(points, SIZE, BOUNDS, 3, 100)
    for _ in range(10):
        again = voxelization(points, SIZE, BOUNDS, 3, 100, deterministic=False)
        assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_opcheck_and_compile():
    """K26: the cells; how many voxels there are is data, at which a graph has to end."""
    points = make(100)
    sizes = ([0.5, 0.25, 1.0], [-3.0, -2, -1, 3, 2, 1])
    torch.library.opcheck(torch.ops.mmcv.dynamic_voxelize.default, (points, *sizes))
    torch.library.opcheck(torch.ops.mmcv.hard_voxelize.default, (points, *sizes, 4, 20))
    compiled = torch.compile(voxelization, fullgraph=True, backend="aot_eager")
    assert torch.equal(
        compiled(points, SIZE, BOUNDS, -1, -1), voxelization(points, SIZE, BOUNDS, -1, -1)
    )


def test_module_uses_the_limit_of_its_mode():
    module = Voxelization(SIZE, BOUNDS, 4, (20, 30))
    assert module.grid_size.tolist() == [12, 16, 2] and module.pcd_shape == [1, 16, 12]
    points = make(2000)
    assert len(module(points)[0]) == 20
    assert len(module.eval()(points)[0]) == 30
    assert Voxelization(SIZE, BOUNDS, 4, [5, 6]).max_voxels == (5, 6)
    assert Voxelization(SIZE, BOUNDS, 4, 7).max_voxels == (7, 7)


def test_errors_name_the_argument():
    points = make(5)
    with pytest.raises(ValueError, match="points must be"):
        voxelization(points[:, :2], SIZE, BOUNDS)
    with pytest.raises(ValueError, match="voxel_size must be"):
        voxelization(points, [1, 1, 0], BOUNDS)
    with pytest.raises(ValueError, match="coors_range must be"):
        voxelization(points, SIZE, BOUNDS[3:] + BOUNDS[:3])
    with pytest.raises(ValueError, match="max_points must be"):
        voxelization(points, SIZE, BOUNDS, -2)
    with pytest.raises(TypeError, match="points must be floating point"):
        voxelization(points.int(), SIZE, BOUNDS)
