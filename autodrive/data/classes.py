"""The ten detection classes of nuScenes, the six cameras, and their orders."""

# The order of BEVFormer's class branches, and so of its checkpoints.
CLASSES = (
    "car",
    "truck",
    "construction_vehicle",
    "bus",
    "trailer",
    "barrier",
    "motorcycle",
    "bicycle",
    "pedestrian",
    "traffic_cone",
)

# The order in which models see the cameras; BEVFormer's camera embeddings are indexed by it.
CAMERAS = (
    "CAM_FRONT",
    "CAM_FRONT_RIGHT",
    "CAM_FRONT_LEFT",
    "CAM_BACK",
    "CAM_BACK_LEFT",
    "CAM_BACK_RIGHT",
)

MOVING_SPEED = 0.2  # m/s, above which an object gets a "moving" attribute


def attribute_name(class_name: str, speed: float) -> str:
    """The nuScenes attribute of a prediction, from its class and speed in m/s ("" for barriers and cones)."""
    moving = speed > MOVING_SPEED
    if class_name in ("car", "construction_vehicle", "bus", "truck", "trailer"):
        stopped = "vehicle.stopped" if class_name == "bus" else "vehicle.parked"
        return "vehicle.moving" if moving else stopped
    if class_name in ("bicycle", "motorcycle"):
        return "cycle.with_rider" if moving else "cycle.without_rider"
    if class_name == "pedestrian":
        return "pedestrian.moving" if moving else "pedestrian.standing"
    return ""
