"""Against torch's BatchNorm over the samples of all processes."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from mmcv.ops import SyncBatchNorm
from torch import nn

SHARES = {"default": [3, 3], "N": [4, 2], "empty": [6, 0]}


def make_batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(6, 3, 2, 2, generator=generator) * 2 + 1


def plain_result(x, steps=2):
    module = nn.BatchNorm2d(3)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
    x = x.clone().requires_grad_()
    for _ in range(steps):
        output = module(x)
    output.square().sum().backward()
    return module, output.detach(), x.grad


def worker(rank, size, file, case, results):
    dist.init_process_group("gloo", f"file://{file}", rank=rank, world_size=size)
    parts = make_batch().split(SHARES[case] if size > 1 else [6])
    module = SyncBatchNorm(3, stats_mode="default" if case == "default" else "N")
    with torch.no_grad():
        module.weight.copy_(torch.tensor([0.5, 1.0, 2.0]))
    x = parts[rank].clone().requires_grad_()
    for _ in range(2):
        output = module(x)
    output.square().sum().backward()
    found = [output.detach(), x.grad, module.weight.grad, module.running_mean, module.running_var]
    results[rank] = [tensor.numpy() for tensor in found]
    dist.destroy_process_group()


@pytest.mark.parametrize("case", SHARES)
def test_two_processes_normalise_like_one(case, tmp_path):
    x = make_batch()
    plain, output, grad = plain_result(x)
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(worker, (2, tmp_path / "store", case, results), nprocs=2)
        parts = [[torch.from_numpy(array) for array in results[rank]] for rank in range(2)]
    assert torch.allclose(torch.cat([part[0] for part in parts]), output, atol=1e-5)
    for part in parts:
        # Gradients of parameters are averaged.
        assert torch.allclose(part[2], plain.weight.grad / 2, rtol=1e-4)
        assert torch.allclose(part[3], plain.running_mean, atol=1e-6)
    if case == "default":
        assert torch.allclose(torch.cat([part[1] for part in parts]), grad, atol=1e-4)
        assert torch.allclose(parts[0][4], plain.running_var, rtol=1e-4)


def test_alone_equals_batch_norm():
    x = make_batch()
    plain, output, grad = plain_result(x)
    module = SyncBatchNorm(3)
    module.load_state_dict(
        {**plain.state_dict(), "running_mean": torch.zeros(3), "running_var": torch.ones(3)}
    )
    x = x.requires_grad_()
    for _ in range(2):
        found = module(x)
    found.square().sum().backward()
    assert torch.allclose(found, output, atol=1e-5)
    assert torch.allclose(x.grad, grad, atol=1e-4)
    assert torch.allclose(module.weight.grad, plain.weight.grad, rtol=1e-4)
    assert torch.allclose(module.running_var, plain.running_var)
    assert torch.allclose(module.eval()(x), plain.eval()(x), atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (0, 3, 2, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_shapes_and_dtypes(shape, dtype):
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    module = SyncBatchNorm(3)
    output = module(x)
    assert output.shape == shape and output.dtype == dtype
    output.sum().backward()
    assert x.grad.shape == shape and module.weight.grad.isfinite().all()


def test_errors_and_average_momentum():
    with pytest.raises(ValueError, match="input must be"):
        SyncBatchNorm(3)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="affine must be"):
        SyncBatchNorm(3, affine=False)
    module, plain = SyncBatchNorm(3, momentum=None), nn.BatchNorm2d(3, momentum=None)
    for part in make_batch().split(2):
        module(part), plain(part)
    assert torch.allclose(module.running_mean, plain.running_mean, atol=1e-6)
