import pytest
import torch
from mmcv.ops import transform_points

from tests.mmcv.devices import DEVICES, DTYPES, assert_close

FORMS = [(3, 3, 3), (3, 3, 4), (3, 4, 4), (4, 4, 4), (4, 3, 4)]
"""Numbers of a point, rows and columns of a matrix."""
BATCHES = [
    ((), ()),
    ((7,), ()),
    ((2, 5), (2, 1)),
    ((2, 1, 5), (2, 3, 1)),
    ((5,), (4, 1)),
    ((4, 1), (5,)),
    ((2, 3), (2, 3)),
]


def make(device, dtype, form, batch):
    generator = torch.Generator().manual_seed(0)
    dims, rows, columns = form
    points = torch.randn(*batch[0], dims, generator=generator).to(device, dtype)
    matrices = torch.randn(*batch[1], rows, columns, generator=generator).to(device, dtype)
    return points, matrices


def reference(points, matrices):
    points, matrices = points.double().cpu(), matrices.double().cpu()
    dims = points.shape[-1]
    if dims == 3:
        matrices = matrices[..., :3, :]
    if matrices.shape[-1] > dims:
        points = torch.cat([points, torch.ones_like(points[..., :1])], -1)
    return (matrices @ points[..., None])[..., 0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batch", BATCHES)
def test_values_and_gradients_equal_the_reference(device, dtype, form, batch):
    """K24"""
    leaves = [x.requires_grad_() for x in make(device, dtype, form, batch)]
    exact = [x.detach().double().cpu().requires_grad_() for x in leaves]
    output, expected = transform_points(*leaves), reference(*exact)
    assert output.dtype == dtype
    assert_close(output, expected.detach(), dtype)
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    output.backward(grad.to(device))
    expected.backward(grad.double())
    for leaf, wanted in zip(leaves, exact):
        assert leaf.grad.dtype == dtype
        assert_close(leaf.grad, wanted.grad, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", FORMS)
def test_gradcheck_of_both_orders(device, form):
    leaves = [x.requires_grad_() for x in make(device, torch.float64, form, ((2, 1, 3), (2, 2, 1)))]
    assert torch.autograd.gradcheck(transform_points, leaves)
    assert torch.autograd.gradgradcheck(transform_points, leaves)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    """K26"""
    points, matrices = make(device, torch.float32, (3, 3, 4), ((2, 5), (2, 1)))
    arguments = (points.requires_grad_(), matrices.requires_grad_())
    torch.library.opcheck(torch.ops.mmcv.transform_points.default, arguments)


@pytest.mark.parametrize("device", DEVICES)
def test_compiles_without_a_graph_break(device):
    """K26"""
    leaves = [x.requires_grad_() for x in make(device, torch.float32, (4, 4, 4), ((2, 5), (2, 1)))]
    compiled = torch.compile(transform_points, fullgraph=True, backend="aot_eager")
    found, expected = compiled(*leaves), transform_points(*leaves)
    assert torch.equal(found, expected)
    gradients = [torch.autograd.grad(x.square().sum(), leaves) for x in (found, expected)]
    for a, b in zip(*gradients):
        assert_close(a, b.double().cpu())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "batch", [((0,), ()), ((0, 5), (0, 1)), ((2, 0), (2, 1)), ((1, 5), (0, 1))]
)
def test_nothing_in_gives_nothing_out(device, batch):
    """K22"""
    leaves = [x.requires_grad_() for x in make(device, torch.float32, (3, 4, 4), batch)]
    output = transform_points(*leaves)
    assert output.numel() == 0 and output.shape[-1] == 3
    output.sum().backward()
    assert all(leaf.grad.shape == leaf.shape and not leaf.grad.any() for leaf in leaves)


@pytest.mark.parametrize("device", DEVICES)
def test_strided_inputs_equal_contiguous_ones(device):
    """K07"""
    points = torch.randn(4, 6, 5, device=device).permute(2, 1, 0)[:, ::2]
    matrices = torch.randn(4, 4, 5, device=device).permute(2, 1, 0)[:, None]
    found = transform_points(points, matrices)
    assert torch.equal(found, transform_points(points.contiguous(), matrices.contiguous()))
    assert_close(found, reference(points, matrices))


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_points_keep_exact_matrices(device):
    points = torch.tensor([[1.0, 2.0, 3.0]], device=device, dtype=torch.float16)
    matrix = torch.eye(4, device=device)
    # Neither is a float16 number: rounded to one, the sum would be 4 instead of 1.25.
    matrix[0, 0], matrix[0, 3] = 4097.25, -4096
    assert transform_points(points, matrix)[0, 0].item() == 1.25


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_the_same_every_time(device):
    """K25"""
    leaves = [
        x.requires_grad_() for x in make(device, torch.float32, (4, 4, 4), ((2, 999), (2, 1)))
    ]
    runs = []
    for _ in range(10):
        output = transform_points(*leaves)
        runs.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0]))


def test_errors_name_the_argument():
    points, matrices = torch.zeros(5, 3), torch.eye(4)
    with pytest.raises(ValueError, match=r"points must be .* got \(5, 2\)"):
        transform_points(points[:, :2], matrices)
    with pytest.raises(ValueError, match=r"matrices must be .* got \(2, 4\)"):
        transform_points(points, matrices[:2])
    with pytest.raises(ValueError, match=r"matrices must be .* got \(3, 3\)"):
        transform_points(torch.zeros(5, 4), torch.eye(3))
    with pytest.raises(ValueError, match="must broadcast"):
        transform_points(points, matrices.expand(4, 4, 4))
    with pytest.raises(TypeError, match="points must be floating point"):
        transform_points(points.long(), matrices)
