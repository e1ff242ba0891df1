"""What other packages import from mmcv: names, modules, versions, and clear errors for the rest."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import mmcv.ops
import pytest
import torch
from mmcv.ops import library, surface
from mmengine.utils import digit_version

import mmcv

# What upstream's mmcv.ops exports, and its modules
CLASSES = """
BezierAlign BorderAlign CARAFE CARAFENaive CARAFEPack Conv2d ConvTranspose2d CornerPool
Correlation CrissCrossAttention DeformConv2d DeformConv2dPack DeformRoIPool DeformRoIPoolPack
DynamicScatter FusedBiasLeakyReLU GroupAll Linear MaskedConv2d MaxPool2d ModulatedDeformConv2d
ModulatedDeformConv2dPack ModulatedDeformRoIPoolPack MultiScaleDeformableAttention PSAMask
PointsSampler PrRoIPool QueryAndGroup RiRoIAlignRotated RoIAlign RoIAlignRotated RoIAwarePool3d
RoIPointPool3d RoIPool SAConv2d SigmoidFocalLoss SimpleRoIAlign SoftmaxFocalLoss SparseConv2d
SparseConv3d SparseConvTensor SparseConvTranspose2d SparseConvTranspose3d SparseInverseConv2d
SparseInverseConv3d SparseMaxPool2d SparseMaxPool3d SparseModule SparseSequential SubMConv2d
SubMConv3d SyncBatchNorm TINShift Voxelization
""".split()

FUNCTIONS = """
active_rotated_filter assign_score_withk ball_query batched_nms bbox_overlaps bezier_align
bias_act border_align box_iou_quadri box_iou_rotated boxes_iou3d boxes_iou_bev boxes_overlap_bev
carafe carafe_naive chamfer_distance contour_expand conv2d conv_transpose2d convex_giou convex_iou
deform_conv2d deform_roi_pool diff_iou_rotated_2d diff_iou_rotated_3d dynamic_scatter filter2d
filtered_lrelu furthest_point_sample furthest_point_sample_with_dist fused_bias_leakyrelu
gather_points get_compiler_version get_compiling_cuda_version grouping_operation knn masked_conv2d
min_area_polygons modulated_deform_conv2d nms nms3d nms3d_normal nms_bev nms_match nms_normal_bev
nms_quadri nms_rotated pixel_group point_sample points_in_boxes_all points_in_boxes_cpu
points_in_boxes_part points_in_polygons prroi_pool rel_roi_point_to_rel_img_point
riroi_align_rotated roi_align roi_align_rotated roi_pool rotated_feature_align scatter_nd
sigmoid_focal_loss soft_nms softmax_focal_loss three_interpolate three_nn tin_shift upfirdn2d
upsample2d voxelization
""".split()

MODULES = """
active_rotated_filter assign_score_withk ball_query bbox bezier_align bias_act border_align
box_iou_quadri box_iou_rotated carafe cc_attention chamfer_distance contour_expand conv2d_gradfix
convex_iou corner_pool correlation deform_conv deform_roi_pool deprecated_wrappers
diff_iou_rotated filtered_lrelu focal_loss furthest_point_sample fused_bias_leakyrelu
gather_points group_points info iou3d knn masked_conv merge_cells min_area_polygons
modulated_deform_conv multi_scale_deform_attn nms pixel_group point_sample points_in_boxes
points_in_polygons points_sampler prroi_pool psa_mask riroi_align_rotated roi_align
roi_align_rotated roi_pool roiaware_pool3d roipoint_pool3d rotated_feature_align saconv
scatter_points sparse_conv sparse_functional sparse_modules sparse_ops sparse_pool
sparse_structure sync_bn three_interpolate three_nn tin_shift upfirdn2d voxelize
""".split()

# What users import from modules although mmcv.ops does not export it
INNER_NAMES = {
    "multi_scale_deform_attn": (
        "MultiScaleDeformableAttnFunction multi_scale_deformable_attn_pytorch"
    ),
    "merge_cells": "BaseMergeCell SumCell ConcatCell GlobalPoolingCell",
    "point_sample": "bilinear_grid_sample normalize denormalize generate_grid",
    "diff_iou_rotated": "box2corners oriented_box_intersection_2d",
    "points_sampler": "calc_square_dist get_sampler_cls DFPSSampler FFPSSampler FSSampler",
    "sparse_conv": "SparseConvolution SparseConv4d SubMConv4d",
    "sparse_modules": "ToDense RemoveGrid is_spconv_module is_sparse_conv",
    "sparse_ops": "get_indice_pairs get_conv_output_size get_deconv_output_size indice_conv",
    "sparse_functional": "indice_conv indice_inverse_conv indice_subm_conv indice_maxpool",
    "roi_align": "RoIAlignFunction",
    "nms": "NMSop SoftNMSop batched_nms",
    "modulated_deform_conv": "ModulatedDeformConv2dFunction",
    "deform_conv": "DeformConv2dFunction",
    "upfirdn2d": "downsample2d",
    "bias_act": "EasyDict",
}


@pytest.fixture
def fresh_python():
    """Runs code in a process of its own and returns what it prints."""

    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_all_names_of_upstream_are_exported():
    assert len(CLASSES) + len(FUNCTIONS) == 124
    assert set(CLASSES + FUNCTIONS) <= set(mmcv.ops.__all__)
    assert all(inspect.isclass(getattr(mmcv.ops, name)) for name in CLASSES)
    functions = [getattr(mmcv.ops, name) for name in FUNCTIONS]
    assert all(callable(value) and not inspect.isclass(value) for value in functions)


@pytest.mark.parametrize("name", MODULES)
def test_module_of_upstream_has_its_names(name):
    module = importlib.import_module(f"mmcv.ops.{name}")
    exported, inner = surface.TABLE[name]
    assert all(getattr(module, wanted) is getattr(mmcv.ops, wanted) for wanted in exported)
    assert all(hasattr(module, wanted) for wanted in inner + INNER_NAMES.get(name, "").split())


def test_every_exported_name_comes_from_a_module_of_upstream():
    found = [name for module in MODULES for name in surface.TABLE[module][0]]
    assert sorted(found) == sorted(CLASSES + FUNCTIONS)


def test_names_without_implementation_say_so_when_called():
    for name in set(mmcv.ops.__all__) - set(mmcv.ops._implemented):
        with pytest.raises(RuntimeError, match=f"^mmcv.ops.{name} is not implemented .*; impl"):
            getattr(mmcv.ops, name)(1, key=2)


@pytest.fixture
def half_a_package(tmp_path, monkeypatch):
    """A package whose module `nms` has `nms` only and that has no other module."""
    folder = tmp_path / "half_ops"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "nms.py").write_text("def nms():\n    return 'kept'\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("half_ops")
    for name in [name for name in sys.modules if name.startswith("half_ops")]:
        del sys.modules[name]


def test_stand_ins_fill_missing_modules_and_missing_names(half_a_package):
    exported, implemented = surface.load("half_ops")
    assert implemented == ["nms"] and exported["nms"]() == "kept"
    with pytest.raises(
        NotImplementedError, match=r"mmcv\.ops\.soft_nms is not .*implemented: nms$"
    ):
        exported["soft_nms"]([])
    from half_ops.carafe import CARAFEPack
    from half_ops.nms import NMSop

    assert CARAFEPack is exported["CARAFEPack"]
    with pytest.raises(NotImplementedError, match="NMSop"):
        NMSop.apply(1)


def test_stand_in_class_can_be_subclassed_and_asked_about(half_a_package):
    stand_in = surface.load("half_ops")[0]["DeformConv2d"]

    class Mine(stand_in):
        def __init__(self):
            super().__init__()

    assert not isinstance(torch.nn.Conv2d(1, 1, 1), stand_in)
    with pytest.raises(NotImplementedError, match="DeformConv2d is not implemented"):
        Mine()


def test_version_is_accepted_by_the_detectors():
    """K29: the ranges that mmdet 3.3 and mmdet3d 1.4 check."""
    assert digit_version("2.0.0rc4") <= digit_version(mmcv.__version__) < digit_version("2.2.0")
    assert mmcv.version_info[:2] == (2, 1)
    assert mmcv.parse_version_info("2.0.0rc4") == (2, 0, 0, 0, "rc", 4)
    assert mmcv.parse_version_info("1.3") == (1, 3, 0, 0, 0, 0)
    assert mmcv.parse_version_info("2.1.0.post2+rocm1", 3) == (2, 1, 0, "post", 2)


@pytest.mark.slow
def test_released_detectors_import(fresh_python):
    """K29."""
    code = (
        "import mmdet.models, mmdet.apis, mmdet3d.models, mmdet3d.apis; print(mmdet3d.__version__)"
    )
    assert fresh_python(code).split()[-1].startswith("1.")


def test_importing_the_ops_leaves_the_gpu_alone(fresh_python):
    code = "import mmcv.ops, torch; print(torch.cuda.is_initialized())"
    assert fresh_python(code).split() == ["False"]


def test_collect_env_reports_the_compilers():
    from mmcv.utils import collect_env

    env = collect_env()
    assert env["MMCV"] == mmcv.__version__
    assert env["MMCV Compiler"] == library.INFO["compiler"]


# mmcv._ext


def test_ext_is_a_real_module():
    assert importlib.util.find_spec("mmcv._ext").origin.endswith("_ext.py")
    if hasattr(pkgutil, "find_loader"):  # gone in Python 3.14
        from mmengine.utils.dl_utils import mmcv_full_available

        assert mmcv_full_available()


def test_ext_has_what_mmdet3d_asks_for_and_denies_the_rest():
    from mmcv.utils import ext_loader

    from mmcv import _ext

    names = ["hard_voxelize_forward", "dynamic_voxelize_forward", "dynamic_point_to_voxel_forward"]
    assert ext_loader.load_ext("_ext", names) is _ext
    assert not hasattr(_ext, "no_such_function")
    with pytest.raises(AttributeError, match=r"mmcv\._ext\.upfirdn2d is not implemented"):
        _ext.upfirdn2d  # noqa: B018


def test_ext_fills_the_voxel_tensors_of_the_caller():
    from mmcv import _ext

    points = torch.tensor([[0.5, 0.5, 0.5, 1.0], [2.5, 0.5, 0.5, 2.0], [0.6, 0.5, 0.5, 3.0]])
    size, bounds = torch.ones(3), torch.tensor([0.0, 0, 0, 4, 4, 4])
    voxels, coors = torch.zeros(5, 2, 4), torch.zeros(5, 3, dtype=torch.int32)
    counts, number = torch.zeros(5, dtype=torch.int32), torch.tensor(0)
    args = (points, size, bounds, voxels, coors, counts, number, 2, 5, 3, True)
    assert _ext.hard_voxelize_forward(*args) is None
    assert number == 2 and counts.tolist() == [2, 1, 0, 0, 0]
    assert coors[:2].tolist() == [[0, 0, 0], [0, 0, 2]]
    assert torch.equal(voxels[0], points[[0, 2]])

    coors = torch.zeros(3, 3, dtype=torch.int32)
    _ext.dynamic_voxelize_forward(points, size, bounds, coors, 3)
    assert coors.tolist() == [[0, 0, 0], [0, 0, 2], [0, 0, 0]]


def test_ext_attention_backward_adds_to_the_gradients_of_the_caller():
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch

    from mmcv import _ext

    generator = torch.Generator().manual_seed(0)
    shapes, starts = torch.tensor([[3, 4], [2, 2]]), torch.tensor([0, 12])
    value = torch.rand(2, 16, 2, 4, generator=generator)
    places = torch.rand(2, 5, 2, 2, 3, 2, generator=generator)
    weights = torch.rand(2, 5, 2, 2, 3, generator=generator)
    inputs = [tensor.clone().requires_grad_() for tensor in (value, places, weights)]
    expected = multi_scale_deformable_attn_pytorch(inputs[0], shapes, *inputs[1:])
    output = _ext.ms_deform_attn_forward(value, shapes, starts, places, weights, im2col_step=64)
    torch.testing.assert_close(output, expected.detach())

    grad = torch.rand(output.shape, generator=generator)
    grads = [torch.zeros_like(tensor) for tensor in (value, places, weights)]
    _ext.ms_deform_attn_backward(
        value, shapes, starts, places, weights, grad, *grads, im2col_step=64
    )
    for found, wanted in zip(grads, torch.autograd.grad(expected, inputs, grad)):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


# What is said when an op cannot run


@pytest.fixture
def built_for(monkeypatch):
    def change(backend: str, archs: list[str]) -> None:
        gpu = {"backend": backend, "version": "7.1", "archs": archs}
        info = {"ops": True, "torch": "2.12.0", "compiler": "GCC 12.2.0", "gpu": gpu, "note": ""}
        monkeypatch.setattr(library, "INFO", info)
        monkeypatch.setattr(library, "CPU_PROBLEM", "")

    return change


def test_other_gpu_architecture_is_one_line(built_for):
    """K32: feature suffixes do not matter; the line has both architectures and the command."""
    built_for("hip", ["gfx90a", "gfx942:xnack-"])
    assert library.arch_problem("gfx90a:sramecc+:xnack-") == ""
    assert library.arch_problem("gfx942") == ""
    problem = library.arch_problem("gfx950:sramecc+:xnack-")
    assert "\n" not in problem
    assert "ROCm 7.1 (gfx90a, gfx942:xnack-)" in problem
    assert (
        "; this GPU is gfx950. Rebuild it: PYTORCH_ROCM_ARCH=gfx950 MMCV_WITH_OPS=1 pip install"
        in problem
    )


@pytest.mark.parametrize(
    ("archs", "capability", "fits"),
    [
        (["8.0"], "8.6", True),
        (["8.6"], "8.0", False),
        (["8.0"], "9.0", False),
        (["8.0+PTX"], "10.0", True),
        (["9.0a"], "9.0", True),
        (["9.0a"], "10.0", False),
    ],
)
def test_cuda_code_runs_on_what_it_was_built_for(built_for, archs, capability, fits):
    built_for("cuda", archs)
    assert (library.arch_problem(capability) == "") == fits


def test_library_is_not_loaded_on_another_architecture(built_for, monkeypatch):
    """K32, with the query of the GPU replaced."""

    class Properties:
        gcnArchName = "gfx1100"

    built_for("hip", ["gfx942"])
    monkeypatch.setattr(torch.version, "hip", "7.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: Properties)
    assert "this GPU is gfx1100. Rebuild it" in library.gpu_problem()


def test_library_of_the_other_vendor_is_named(built_for, monkeypatch):
    built_for("hip", ["gfx942"])
    monkeypatch.setattr(torch.version, "hip", None)
    problem = library.gpu_problem()
    assert "is a CUDA build" in problem and "MMCV_GPU=cuda MMCV_WITH_OPS=1 pip install" in problem


def test_op_without_gpu_kernel_says_so_on_gpu_tensors(fresh_python):
    """K28, without a GPU: the dispatcher is asked for the kernel that a GPU tensor would get."""
    code = """
import torch
from mmcv.ops import library
definitions = torch.library.Library("mmcv", "FRAGMENT")
definitions.define("test_probe(Tensor x) -> Tensor")
definitions.impl("test_probe", lambda x: x, "CPU")
library._on_first_gpu_use()
op = torch.ops.mmcv.test_probe.default
assert op(torch.ones(1)) == 1
try:
    op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA), torch.ones(1))
except RuntimeError as error:
    print(error)
"""
    line = fresh_python(code).strip()
    assert line.startswith("test_probe: ") and "\n" not in line
    assert "no GPU kernel" in line or "Rebuild it" in line


def test_check_command_tells_what_was_built():
    done = subprocess.run([sys.executable, "-m", "mmcv.ops"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip() == f"mmcv.ops was built {library.summary()}"
