import numpy as np
import pytest
import torch
from mmcv.ops import MultiScaleDeformableAttention
from mmcv.ops.multi_scale_deform_attn import (
    MultiScaleDeformableAttnFunction,
    ms_deform_attn,
    multi_scale_deformable_attn_pytorch,
)

from tests.mmcv.devices import DEVICES, DTYPES, assert_close
from tests.mmcv.reference.ms_deform_attn import ms_deform_attn as reference

SHAPES = [(5, 7), (3, 2)]
ROWS = sum(h * w for h, w in SHAPES)


def make_inputs(device="cpu", dtype=torch.float32, B=2, Q=9, H=3, C=8, P=2, seed=0):
    """Locations reach from outside one border to outside the other."""
    generator = torch.Generator().manual_seed(seed)
    L = len(SHAPES)
    value = torch.randn(B, ROWS, H, C, generator=generator)
    locations = torch.rand(B, Q, H, L, P, 2, generator=generator) * 1.6 - 0.3
    weights = torch.rand(B, Q, H, L, P, generator=generator)
    shapes = torch.tensor(SHAPES, device=device)
    starts = torch.tensor([0, SHAPES[0][0] * SHAPES[0][1]], device=device)
    value, locations, weights = (x.to(device, dtype) for x in (value, locations, weights))
    return value, shapes, starts, locations, weights


def expect(inputs):
    value, _, _, locations, weights = inputs
    value, locations, weights = (x.double().cpu().numpy() for x in (value, locations, weights))
    return reference(value, SHAPES, locations, weights)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("C", [1, 3, 4, 6, 8, 16, 32, 40, 64, 256, 300])
def test_forward_equals_the_reference(device, dtype, C):
    inputs = make_inputs(device, dtype, C=C, Q=3)
    output = ms_deform_attn(*inputs)
    assert output.dtype == dtype
    assert_close(output, expect(inputs), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("C", [1, 6, 8, 32, 40])
def test_gradients_equal_those_of_grid_sample(device, dtype, C):
    """K24: half precision is summed in float32, and gradients have the dtypes of their arguments."""
    value, shapes, starts, _, weights = make_inputs(device, dtype, C=C)
    # Not rounded to half precision, where many lie on a pixel: the gradient has a step there.
    locations = make_inputs(device, torch.promote_types(dtype, torch.float32), C=C)[3]
    leaves = [x.requires_grad_() for x in (value, locations, weights)]
    exact = [x.detach().double().cpu().requires_grad_() for x in leaves]
    output = ms_deform_attn(leaves[0], shapes, starts, leaves[1], leaves[2])
    expected = multi_scale_deformable_attn_pytorch(exact[0], SHAPES, exact[1], exact[2])
    grad = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    output.backward(grad.to(device))
    expected.backward(grad.double())
    for leaf, wanted in zip(leaves, exact):
        assert leaf.grad.dtype == leaf.dtype
        assert_close(leaf.grad, wanted.grad, dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_gradcheck(device):
    value, shapes, starts, locations, weights = make_inputs(
        device, torch.float64, B=1, Q=2, H=2, C=3
    )
    leaves = [x.requires_grad_() for x in (value, locations, weights)]
    assert torch.autograd.gradcheck(
        lambda v, x, w: ms_deform_attn(v, shapes, starts, x, w), leaves, nondet_tol=1e-9
    )


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck(device):
    """K26"""
    inputs = make_inputs(device)
    leaves = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    torch.library.opcheck(torch.ops.mmcv.ms_deform_attn.default, leaves)


@pytest.mark.parametrize("device", DEVICES)
def test_compiles_without_a_graph_break(device):
    """K26"""
    module = MultiScaleDeformableAttention(embed_dims=16, num_heads=2, num_levels=2, num_points=2)
    module = module.to(device).eval()
    _, shapes, starts, _, _ = make_inputs(device)
    query = torch.randn(4, 1, 16, device=device)
    value = torch.randn(ROWS, 1, 16, device=device)
    points = torch.rand(1, 4, 2, 2, device=device)

    def run(function):
        module.zero_grad()
        output = function(
            query,
            value=value,
            reference_points=points,
            spatial_shapes=shapes,
            level_start_index=starts,
        )
        output.square().sum().backward()
        return output.detach(), module.value_proj.weight.grad.clone()

    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for found, expected in zip(run(compiled), run(module)):
        assert_close(found, expected.double().cpu())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [dict(B=0), dict(Q=0)])
def test_nothing_in_gives_nothing_out(device, size):
    """K22"""
    value, shapes, starts, locations, weights = make_inputs(device, **size)
    leaves = [x.requires_grad_() for x in (value, locations, weights)]
    output = ms_deform_attn(leaves[0], shapes, starts, leaves[1], leaves[2])
    assert output.shape == (len(value), locations.shape[1], 24)
    output.sum().backward()
    assert all(leaf.grad.shape == leaf.shape and not leaf.grad.any() for leaf in leaves)


@pytest.mark.parametrize("device", DEVICES)
def test_strided_inputs_equal_contiguous_ones(device):
    """K07"""
    value, shapes, starts, locations, weights = make_inputs(device)
    strided = [
        x.transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
        for x in (value, locations, weights)
    ]
    plain = [x.clone().requires_grad_() for x in (value, locations, weights)]
    outputs = [ms_deform_attn(v, shapes, starts, x, w) for v, x, w in (strided, plain)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.sum().backward()  # its gradient is an expanded scalar
    for found, expected in zip(strided, plain):
        assert_close(found.grad, expected.grad.double().cpu())


@pytest.mark.parametrize("device", DEVICES)
def test_mixed_dtypes_and_autocast(device):
    """K23"""
    inputs = make_inputs(device)
    value, shapes, starts, locations, weights = inputs
    exact = expect(inputs)
    for dtype in (torch.float16, torch.bfloat16):
        leaves = [value.to(dtype), locations.clone(), weights.clone()]
        leaves = [x.requires_grad_() for x in leaves]
        output = ms_deform_attn(leaves[0], shapes, starts, leaves[1], leaves[2])
        assert output.dtype == dtype
        assert_close(output, exact, dtype)
        output.sum().backward()
        assert [x.grad.dtype for x in leaves] == [dtype, torch.float32, torch.float32]
        with torch.autocast(device, dtype=dtype):
            assert ms_deform_attn(*inputs).dtype == torch.float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 2.0])
def test_far_locations_give_nothing(device, bad):
    """K15"""
    value, shapes, starts, locations, weights = make_inputs(device)
    locations.fill_(bad)
    leaves = [x.requires_grad_() for x in (value, locations, weights)]
    output = ms_deform_attn(leaves[0], shapes, starts, leaves[1], leaves[2])
    output.sum().backward()
    assert not output.any()
    assert not any(leaf.grad.any() for leaf in leaves)


def test_errors_name_the_argument():
    """K15"""
    value, shapes, starts, locations, weights = make_inputs()
    with pytest.raises(ValueError, match=r"spatial_shapes must add up to the 41 rows.* got 29"):
        ms_deform_attn(value, torch.tensor([[5, 5], [2, 2]]), starts, locations, weights)
    with pytest.raises(ValueError, match="level_start_index must be"):
        ms_deform_attn(value, shapes, starts.flip(0), locations, weights)
    with pytest.raises(ValueError, match="attention_weights must be"):
        ms_deform_attn(value, shapes, starts, locations, weights[:, :, :1])
    with pytest.raises(ValueError, match="value must be"):
        ms_deform_attn(value[0], shapes, starts, locations, weights)
    with pytest.raises(TypeError, match="value must be floating point"):
        ms_deform_attn(value.long(), shapes, starts, locations, weights)


@pytest.mark.parametrize("device", DEVICES)
def test_int32_shapes_are_accepted(device):
    """K15"""
    value, shapes, starts, locations, weights = make_inputs(device)
    expected = ms_deform_attn(value, shapes, starts, locations, weights)
    assert torch.equal(
        ms_deform_attn(value, shapes.int(), starts.int(), locations, weights), expected
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("B", [80, 96, 104, 114, 134, 154, 194])
def test_any_batch_size_equals_one_by_one(device, B):
    """K14"""
    value, shapes, starts, locations, weights = make_inputs(device, B=B, Q=2, H=1, C=4)
    output = MultiScaleDeformableAttnFunction.apply(value, shapes, starts, locations, weights, 64)
    single = [
        ms_deform_attn(value[b : b + 1], shapes, starts, locations[b : b + 1], weights[b : b + 1])
        for b in range(B)
    ]
    assert torch.equal(output, torch.cat(single))


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_the_same_every_time(device):
    """K25"""
    value, shapes, starts, locations, weights = make_inputs(device, Q=500)
    leaves = [x.requires_grad_() for x in (value, locations, weights)]
    torch.use_deterministic_algorithms(True)
    try:
        runs = []
        for _ in range(10):
            output = ms_deform_attn(leaves[0], shapes, starts, leaves[1], leaves[2])
            runs.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0]))
    output = ms_deform_attn(leaves[0], shapes, starts, leaves[1], leaves[2])
    plain = torch.autograd.grad(output.square().sum(), leaves)
    for found, expected in zip(runs[0][1:], plain):
        assert_close(found, expected.double().cpu())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("last", [2, 4])
def test_module_equals_its_float64_self(device, batch_first, last):
    """K12"""
    torch.manual_seed(0)
    module = MultiScaleDeformableAttention(
        embed_dims=16, num_heads=4, num_levels=2, num_points=2, batch_first=batch_first
    ).eval()
    for name in ("sampling_offsets", "attention_weights"):
        torch.nn.init.normal_(getattr(module, name).weight)
    query, value = torch.randn(2, 5, 16), torch.randn(2, ROWS, 16)
    mask = torch.rand(2, ROWS) < 0.2
    points = torch.rand(2, 5, 2, last) * 1.2 - 0.1
    if not batch_first:
        query, value = query.transpose(0, 1), value.transpose(0, 1)

    def run(dtype, place):
        _, shapes, starts, _, _ = make_inputs(place)
        return module.to(place, dtype)(
            query.to(place, dtype),
            value=value.to(place, dtype),
            key_padding_mask=mask.to(place),
            reference_points=points.to(place, dtype),
            spatial_shapes=shapes,
            level_start_index=starts,
        )

    exact = run(torch.float64, "cpu")
    assert_close(run(torch.float32, device), exact.detach())


def test_offsets_start_in_different_directions():
    module = MultiScaleDeformableAttention(embed_dims=16, num_heads=4, num_levels=1, num_points=2)
    bias = module.sampling_offsets.bias.detach().view(4, 1, 2, 2).numpy()
    directions = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], float)
    np.testing.assert_allclose(bias[:, 0, 0], directions, atol=1e-6)
    np.testing.assert_allclose(bias[:, 0, 1], 2 * directions, atol=1e-6)


def test_module_checks_its_arguments():
    with pytest.raises(ValueError, match="multiple of num_heads"):
        MultiScaleDeformableAttention(embed_dims=10, num_heads=4)
    with pytest.warns(UserWarning, match="power of two"):
        MultiScaleDeformableAttention(embed_dims=24, num_heads=8)
