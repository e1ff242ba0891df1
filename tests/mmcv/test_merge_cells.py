import pytest
import torch
from mmcv.ops.merge_cells import BaseMergeCell, ConcatCell, GlobalPoolingCell, SumCell


def test_sum_upsamples_the_smaller_map():
    small, large = torch.randn(1, 2, 2, 3), torch.randn(1, 2, 4, 6)
    cell = SumCell(2, 2, with_out_conv=False)
    expected = small.repeat_interleave(2, 2).repeat_interleave(2, 3) + large
    assert torch.equal(cell(small, large), expected)
    assert torch.equal(cell(large, small), expected)


def test_smaller_output_is_the_largest_of_each_window():
    x = torch.arange(16.0).view(1, 1, 4, 4)
    cell = SumCell(1, 1, with_out_conv=False)
    assert torch.equal(cell(x, x, (2, 2)), 2 * torch.tensor([[[[5.0, 7.0], [13.0, 15.0]]]]))
    # 5 rows to 2: one row of zeros is missing, below.
    tall = -torch.ones(1, 1, 5, 2)
    assert torch.equal(cell._resize(tall, (2, 1)).flatten(), torch.tensor([-1.0, 0.0]))


def test_concat_and_global_pooling():
    x1, x2 = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    assert torch.equal(ConcatCell(3, 6, with_out_conv=False)(x1, x2), torch.cat([x1, x2], 1))
    weight = x2.mean((2, 3), keepdim=True).sigmoid()
    found = GlobalPoolingCell(with_out_conv=False)(x1, x2)
    assert torch.allclose(found, x2 + weight * x1)


@pytest.mark.parametrize("cell", [SumCell, ConcatCell, GlobalPoolingCell])
def test_convolutions_and_their_keys(cell):
    module = (
        cell(4, 6, with_input1_conv=True, with_input2_conv=True)
        if cell is not ConcatCell
        else cell(4, 6)
    )
    out = module(torch.randn(1, 4, 8, 8), torch.randn(1, 4, 4, 4))
    assert out.shape == (1, 6, 8, 8)
    keys = {"out_conv.conv.weight", "out_conv.conv.bias"}
    if cell is not ConcatCell:
        keys |= {f"input{i}_conv.conv.{kind}" for i in (1, 2) for kind in ("weight", "bias")}
    assert set(module.state_dict()) == keys
    assert isinstance(module, BaseMergeCell)
