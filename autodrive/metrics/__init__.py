from .nuscenes_detection import NuScenesDetectionMetric

__all__ = ["NuScenesDetectionMetric"]
