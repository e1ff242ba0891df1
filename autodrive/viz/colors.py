"""One colour per class, the same in every picture."""

from autodrive.data.classes import CLASSES

HEX = (
    "#1f77b4",  # car
    "#ff7f0e",  # truck
    "#8c564b",  # construction_vehicle
    "#d62728",  # bus
    "#9467bd",  # trailer
    "#7f7f7f",  # barrier
    "#e377c2",  # motorcycle
    "#17becf",  # bicycle
    "#2ca02c",  # pedestrian
    "#bcbd22",  # traffic_cone
)
CLASS_COLORS = dict(zip(CLASSES, HEX))


def bgr(class_name: str) -> tuple[int, int, int]:
    """For OpenCV."""
    value = CLASS_COLORS[class_name].lstrip("#")
    red, green, blue = (int(value[i : i + 2], 16) for i in (0, 2, 4))
    return blue, green, red
