// The catalogue of compiled ops: one schema each. Kernels register themselves in cpu/ and gpu/.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(mmcv, m) {
  m.def(
      "ms_deform_attn(Tensor value, Tensor spatial_shapes, Tensor level_start, Tensor locations, "
      "Tensor weights) -> Tensor");
  m.def(
      "ms_deform_attn_backward(Tensor grad_output, Tensor value, Tensor spatial_shapes, "
      "Tensor level_start, Tensor locations, Tensor weights, Tensor? fixed_point_scale) "
      "-> (Tensor, Tensor, Tensor)");
  m.def("nms(Tensor boxes, float iou_threshold, int offset) -> Tensor");
  m.def(
      "box_iou_rotated(Tensor boxes1, Tensor boxes2, bool iof, bool aligned, bool clockwise) "
      "-> Tensor");
  m.def(
      "sigmoid_focal_loss(Tensor input, Tensor target, Tensor? weight, float gamma, float alpha) "
      "-> Tensor");
  m.def(
      "sigmoid_focal_loss_backward(Tensor grad_output, Tensor input, Tensor target, "
      "Tensor? weight, float gamma, float alpha) -> Tensor");
  m.def("dynamic_voxelize(Tensor points, float[] voxel_size, float[] coors_range) -> Tensor");
  m.def(
      "hard_voxelize(Tensor points, float[] voxel_size, float[] coors_range, int max_points, "
      "int max_voxels) -> (Tensor, Tensor, Tensor)");
  m.def(
      "roi_align(Tensor input, Tensor rois, int bins_y, int bins_x, float spatial_scale, "
      "int sampling_ratio, bool largest, bool aligned) -> Tensor");
  m.def(
      "roi_align_backward(Tensor grad_output, Tensor input, Tensor rois, float spatial_scale, "
      "int sampling_ratio, bool largest, bool aligned, Tensor? fixed_point_scale) -> Tensor");
  m.def("transform_points(Tensor points, Tensor matrices) -> Tensor");
}
