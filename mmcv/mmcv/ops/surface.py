"""The names that users import from `mmcv.ops`, and stand-ins for those not implemented yet."""

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

from torch import nn

# module: what `mmcv.ops` exports from it | what only `mmcv.ops.<module>` has
_NAMES = """
active_rotated_filter: active_rotated_filter | ActiveRotatedFilterFunction
assign_score_withk: assign_score_withk | AssignScoreWithK
ball_query: ball_query | BallQuery
bbox: bbox_overlaps
bezier_align: BezierAlign bezier_align | BezierAlignFunction
bias_act: bias_act | EasyDict
border_align: BorderAlign border_align | BorderAlignFunction
box_iou_quadri: box_iou_quadri
box_iou_rotated: box_iou_rotated
carafe: CARAFE CARAFENaive CARAFEPack carafe carafe_naive | CARAFEFunction CARAFENaiveFunction
cc_attention: CrissCrossAttention
chamfer_distance: chamfer_distance | ChamferDistanceFunction
contour_expand: contour_expand
conv2d_gradfix: conv2d conv_transpose2d
convex_iou: convex_giou convex_iou
corner_pool: CornerPool
correlation: Correlation | CorrelationFunction
deform_conv: DeformConv2d DeformConv2dPack deform_conv2d | DeformConv2dFunction
deform_roi_pool: DeformRoIPool DeformRoIPoolPack ModulatedDeformRoIPoolPack deform_roi_pool | \
    DeformRoIPoolFunction
deprecated_wrappers: Conv2d ConvTranspose2d Linear MaxPool2d | \
    Conv2d_deprecated ConvTranspose2d_deprecated Linear_deprecated MaxPool2d_deprecated
diff_iou_rotated: diff_iou_rotated_2d diff_iou_rotated_3d | SortVertices box1_in_box2 box2corners \
    box_in_box box_intersection build_vertices calculate_area oriented_box_intersection_2d \
    sort_indices
filtered_lrelu: filtered_lrelu
focal_loss: SigmoidFocalLoss SoftmaxFocalLoss sigmoid_focal_loss softmax_focal_loss | \
    SigmoidFocalLossFunction SoftmaxFocalLossFunction
furthest_point_sample: furthest_point_sample furthest_point_sample_with_dist
fused_bias_leakyrelu: FusedBiasLeakyReLU fused_bias_leakyrelu
gather_points: gather_points | GatherPoints
group_points: GroupAll QueryAndGroup grouping_operation | GroupingOperation
info: get_compiler_version get_compiling_cuda_version
iou3d: boxes_iou3d boxes_iou_bev boxes_overlap_bev nms3d nms3d_normal nms_bev nms_normal_bev
knn: knn | KNN
masked_conv: MaskedConv2d masked_conv2d | MaskedConv2dFunction
merge_cells: | BaseMergeCell ConcatCell GlobalPoolingCell SumCell
min_area_polygons: min_area_polygons
modulated_deform_conv: ModulatedDeformConv2d ModulatedDeformConv2dPack modulated_deform_conv2d | \
    ModulatedDeformConv2dFunction
multi_scale_deform_attn: MultiScaleDeformableAttention | \
    MultiScaleDeformableAttnFunction multi_scale_deformable_attn_pytorch
nms: batched_nms nms nms_match nms_quadri nms_rotated soft_nms | NMSop SoftNMSop
pixel_group: pixel_group
point_sample: SimpleRoIAlign point_sample rel_roi_point_to_rel_img_point | \
    abs_img_point_to_rel_img_point bilinear_grid_sample denormalize generate_grid \
    get_shape_from_feature_map normalize rel_roi_point_to_abs_img_point
points_in_boxes: points_in_boxes_all points_in_boxes_cpu points_in_boxes_part
points_in_polygons: points_in_polygons
points_sampler: PointsSampler | DFPSSampler FFPSSampler FSSampler calc_square_dist get_sampler_cls
prroi_pool: PrRoIPool prroi_pool | PrRoIPoolFunction
psa_mask: PSAMask | PSAMaskFunction psa_mask
riroi_align_rotated: RiRoIAlignRotated riroi_align_rotated | RiRoIAlignRotatedFunction
roi_align: RoIAlign roi_align | RoIAlignFunction
roi_align_rotated: RoIAlignRotated roi_align_rotated | RoIAlignRotatedFunction
roi_pool: RoIPool roi_pool | RoIPoolFunction
roiaware_pool3d: RoIAwarePool3d | RoIAwarePool3dFunction
roipoint_pool3d: RoIPointPool3d | RoIPointPool3dFunction
rotated_feature_align: rotated_feature_align | RotatedFeatureAlignFunction
saconv: SAConv2d
scatter_points: DynamicScatter dynamic_scatter
sparse_conv: SparseConv2d SparseConv3d SparseConvTranspose2d SparseConvTranspose3d \
    SparseInverseConv2d SparseInverseConv3d SubMConv2d SubMConv3d | \
    SparseConv4d SparseConvolution SubMConv4d
sparse_functional: | SparseConvFunction SparseInverseConvFunction SparseMaxPoolFunction \
    SubMConvFunction indice_conv indice_inverse_conv indice_maxpool indice_subm_conv
sparse_modules: SparseModule SparseSequential | RemoveGrid ToDense is_sparse_conv is_spconv_module
sparse_ops: | fused_indice_conv get_conv_output_size get_deconv_output_size get_indice_pairs \
    indice_conv indice_conv_backward indice_maxpool indice_maxpool_backward
sparse_pool: SparseMaxPool2d SparseMaxPool3d
sparse_structure: SparseConvTensor scatter_nd
sync_bn: SyncBatchNorm | SyncBatchNormFunction
three_interpolate: three_interpolate
three_nn: three_nn
tin_shift: TINShift tin_shift | TINShiftFunction
transform_points: transform_points
upfirdn2d: filter2d upfirdn2d upsample2d | downsample2d
voxelize: Voxelization voxelization
"""


def _parse(text: str) -> dict[str, tuple[list[str], list[str]]]:
    table = {}
    for line in text.strip().splitlines():
        module, names = line.split(":")
        exported, _, inner = names.partition("|")
        table[module] = (exported.split(), inner.split())
    return table


TABLE = _parse(_NAMES)
"""module -> (names that `mmcv.ops` exports, names that only the module has)"""


def load(package: str) -> tuple[dict[str, object], list[str]]:
    """Imports every module of the table, with stand-ins for modules and names that do not exist.

    Args:
        package: "mmcv.ops".

    Returns:
        (exported name -> object, sorted exported names that are implemented).
    """
    implemented: list[str] = []
    files = [name for name in TABLE if find_spec(f"{package}.{name}")]
    for name in TABLE.keys() - set(files):
        sys.modules[f"{package}.{name}"] = module = ModuleType(
            f"{package}.{name}", "Not implemented yet."
        )
        module.__spec__ = ModuleSpec(module.__name__, None)
        setattr(sys.modules[package], name, module)
        _fill(module, [*TABLE[name][0], *TABLE[name][1]], implemented)
    exported = {}
    for name in files:
        module = importlib.import_module(f"{package}.{name}")
        public, inner = TABLE[name]
        implemented += [wanted for wanted in public if hasattr(module, wanted)]
        missing = [wanted for wanted in [*public, *inner] if not hasattr(module, wanted)]
        _fill(module, missing, implemented)
    for name, (names, _) in TABLE.items():
        module = sys.modules[f"{package}.{name}"]
        exported.update({wanted: getattr(module, wanted) for wanted in names})
    implemented.sort()
    return exported, implemented


def _fill(module: ModuleType, names: list[str], implemented: list[str]) -> None:
    for name in names:
        make = _absent_class if name[0].isupper() else _absent_function
        setattr(module, name, make(module.__name__, name, implemented))


def _error(name: str, implemented: list[str]) -> NotImplementedError:
    names = ", ".join(implemented)
    return NotImplementedError(
        f"mmcv.ops.{name} is not implemented in this build yet; implemented: {names}"
    )


def _absent_function(module: str, name: str, implemented: list[str]):
    def absent(*args, **kwargs):
        raise _error(name, implemented)

    absent.__module__, absent.__name__, absent.__qualname__ = module, name, name
    return absent


def _absent_class(module: str, name: str, implemented: list[str]) -> type:
    """A class to import, subclass and ask about with isinstance, but not to make or apply."""

    def absent(*args, **kwargs):
        raise _error(name, implemented)

    return type(
        name,
        (nn.Module,),
        {"__module__": module, "__init__": absent, "apply": staticmethod(absent)},
    )
