"""Map files of one location: the vector map expansion (v1.3) and the mask of the drivable surface."""

from collections.abc import Iterable

import cv2
import numpy as np
from shapely.geometry import Polygon
from shapely.ops import unary_union

from autodrive.data.synth.curve import Curve
from autodrive.data.synth.road_map import Lane, RoadMap
from autodrive.data.synth.scene import token

VERSION = "1.3"
MASK_RESOLUTION = 0.1  # m per pixel, which the devkit takes for granted
_LAYERS = (
    "polygon line node drivable_area road_segment road_block lane lane_connector ped_crossing walkway "
    "stop_line carpark_area road_divider lane_divider traffic_light"
).split()


class MapExpansion:
    """The records of one location's map; road maps are added one after the other."""

    def __init__(self, location: str, canvas: tuple[float, float]):
        self.location = location
        self.canvas = canvas
        self.layers: dict[str, list[dict]] = {name: [] for name in _LAYERS}
        self.connectivity: dict[str, dict] = {}
        self.arclines: dict[str, list[dict]] = {}
        self._nodes: dict[tuple[float, float], str] = {}

    def as_json(self) -> dict:
        return {
            "version": VERSION,
            "canvas_edge": list(self.canvas),
            **self.layers,
            "connectivity": self.connectivity,
            "arcline_path_3": self.arclines,
        }

    def mask(self) -> np.ndarray:
        """(h, w) uint8: 255 on drivable surface and walkways; row 0 is at the largest y."""
        width, height = (round(edge / MASK_RESOLUTION) for edge in self.canvas)
        image = np.zeros((height, width), np.uint8)
        nodes = {node["token"]: (node["x"], node["y"]) for node in self.layers["node"]}
        polygons = {polygon["token"]: polygon for polygon in self.layers["polygon"]}
        used = [t for record in self.layers["drivable_area"] for t in record["polygon_tokens"]]
        used += [record["polygon_token"] for record in self.layers["walkway"]]
        for polygon in (polygons[t] for t in used):
            rings = [polygon["exterior_node_tokens"], *(h["node_tokens"] for h in polygon["holes"])]
            pixels = []
            for ring in rings:
                points = np.array([nodes[t] for t in ring]) / MASK_RESOLUTION
                points[:, 1] = height - points[:, 1]
                pixels.append(np.rint(points).astype(np.int32))
            cv2.fillPoly(image, pixels, 255)  # holes stay as they are
        return image

    def add(self, road_map: RoadMap) -> None:
        segments = []
        for polygon, is_junction in road_map.segments:
            record = self._add_polygon("road_segment", polygon, is_intersection=is_junction)
            record["drivable_area_token"] = ""
            segments.append(record["token"])
        blocks = []
        for block in road_map.blocks:
            record = self._add_polygon(
                "road_block",
                block.polygon,
                from_edge_line_token=self._line(block.start_edge),
                to_edge_line_token=self._line(block.end_edge),
                road_segment_token=segments[block.segment],
            )
            blocks.append(record["token"])
        self._add_drivable_area(road_map)
        for line, segment in road_map.road_dividers:
            self._add_line("road_divider", line, road_segment_token=segments[segment])
        for line, _ in road_map.lane_dividers:
            record = self._add_line("lane_divider", line)
            record["lane_divider_segments"] = self._divider_segments(line)
        self._add_lanes(road_map, blocks)
        crossings = []
        for polygon, segment in road_map.crossings:
            record = self._add_polygon(
                "ped_crossing", polygon, road_segment_token=segments[segment]
            )
            crossings.append(record["token"])
        for polygon in road_map.walkways:
            self._add_polygon("walkway", polygon)
        for polygon, yaw, block in road_map.carparks:
            self._add_polygon(
                "carpark_area", polygon, orientation=yaw, road_block_token=blocks[block]
            )
        for polygon, crossing, block, light in road_map.stop_lines:
            self._add_stop_line(polygon, crossings[crossing], blocks[block], light)

    # Geometry.

    def _token(self, *parts: object) -> str:
        return token(self.location, *parts)

    def _node(self, point: Iterable[float]) -> str:
        """The node at a point: one for all geometry that meets there, to the millimetre."""
        x, y = (round(float(v), 3) for v in point)
        if (x, y) not in self._nodes:
            self._nodes[x, y] = self._token("node", x, y)
            self.layers["node"].append({"token": self._nodes[x, y], "x": x, "y": y})
        return self._nodes[x, y]

    def _ring(self, points: np.ndarray) -> list[str]:
        tokens = [self._node(point) for point in points]
        return [t for i, t in enumerate(tokens) if t != tokens[i - 1]]

    def _polygon(self, points: np.ndarray, holes: Iterable[np.ndarray] = ()) -> str:
        key = self._token("polygon", len(self.layers["polygon"]))
        self.layers["polygon"].append(
            {
                "token": key,
                "exterior_node_tokens": self._ring(points),
                "holes": [{"node_tokens": self._ring(hole)} for hole in holes],
            }
        )
        return key

    def _line(self, points: np.ndarray) -> str:
        key = self._token("line", len(self.layers["line"]))
        tokens = [self._node(point) for point in points]
        self.layers["line"].append({"token": key, "node_tokens": tokens})
        return key

    def _add_polygon(self, layer: str, points: np.ndarray, **fields: object) -> dict:
        key = self._token(layer, len(self.layers[layer]))
        record = {"token": key, "polygon_token": self._polygon(points), **fields}
        self.layers[layer].append(record)
        return record

    def _add_line(self, layer: str, points: np.ndarray, **fields: object) -> dict:
        key = self._token(layer, len(self.layers[layer]))
        record = {"token": key, "line_token": self._line(points), **fields}
        self.layers[layer].append(record)
        return record

    def _divider_segments(self, points: np.ndarray) -> list[dict]:
        kind = "SINGLE_DASHED_WHITE"
        return [{"node_token": self._node(p), "segment_type": kind} for p in points]

    # Layers.

    def _add_drivable_area(self, road_map: RoadMap) -> None:
        # Grown by a centimetre and shrunk again, so that neighbours merge in spite of rounded corners.
        parts = [Polygon(polygon).buffer(0.01) for polygon, _ in road_map.segments]
        union = unary_union(parts).buffer(-0.01).simplify(0.02)
        # What shrinks to a sliver is no area to drive on.
        polygons = [p for p in getattr(union, "geoms", [union]) if p.area > 1.0]
        tokens = []
        for polygon in polygons:
            holes = [np.array(ring.coords)[:-1] for ring in polygon.interiors]
            tokens.append(self._polygon(np.array(polygon.exterior.coords)[:-1], holes))
        key = self._token("drivable_area", len(self.layers["drivable_area"]))
        self.layers["drivable_area"].append({"token": key, "polygon_tokens": tokens})
        for segment in self.layers["road_segment"]:
            segment["drivable_area_token"] = segment["drivable_area_token"] or key

    def _add_lanes(self, road_map: RoadMap, blocks: list[str]) -> None:
        added: list[tuple[Lane, str]] = []
        for lane in road_map.lanes:
            added.append((lane, self._add_lane(road_map, lane, blocks[lane.block])))
        for connector in road_map.connectors:
            record = self._add_polygon("lane_connector", connector.curve.strip(-1.8, 1.8))
            added.append((connector, record["token"]))
        for lane, key in added:
            self.arclines[key] = [_arcline(piece) for piece in _pieces(lane.curve)]
        keys = np.array([key for _, key in added])
        starts = np.stack([lane.curve.pose(0.0) for lane, _ in added])
        ends = np.stack([lane.curve.pose(lane.curve.length) for lane, _ in added])
        for key, start, end in zip(keys, starts, ends):
            self.connectivity[str(key)] = {
                "incoming": keys[_meets(ends, start)].tolist(),
                "outgoing": keys[_meets(starts, end)].tolist(),
            }

    def _add_lane(self, road_map: RoadMap, lane: Lane, block: str) -> str:
        half = 1.8
        curve = lane.curve
        edges = [
            np.stack([curve.pose(s, -half)[:2], curve.pose(s, half)[:2]]) for s in (0, curve.length)
        ]
        sides = {}
        for side, divider in (("left", lane.left_divider), ("right", lane.right_divider)):
            line = road_map.lane_dividers[divider][0] if divider >= 0 else []
            sides[f"{side}_lane_divider_segments"] = self._divider_segments(line)
        record = self._add_polygon(
            "lane",
            curve.strip(-half, half),
            lane_type="CAR",
            from_edge_line_token=self._line(edges[0]),
            to_edge_line_token=self._line(edges[1]),
            **sides,
        )
        record["road_block_token"] = block
        return record["token"]

    def _add_stop_line(
        self, polygon: np.ndarray, crossing: str, block: str, light_pose: np.ndarray
    ) -> None:
        x, y, yaw = (float(v) for v in light_pose)
        line = light_pose[:2] + np.array([[0.0, 0.0], [np.cos(yaw), np.sin(yaw)]])
        light = self._add_line(
            "traffic_light",
            line,
            traffic_light_type="VERTICAL",
            from_road_block_token=block,
            items=[
                {
                    "color": colour,
                    "shape": "CIRCLE",
                    "rel_pos": {"tx": 0.0, "ty": 0.0, "tz": z, "rx": 0.0, "ry": 0.0, "rz": 0.0},
                    "to_road_block_tokens": [],
                }
                for colour, z in (("RED", 0.3), ("YELLOW", 0.0), ("GREEN", -0.3))
            ],
            pose={"tx": x, "ty": y, "tz": 3.5, "rx": 0.0, "ry": 0.0, "rz": yaw},
        )
        self._add_polygon(
            "stop_line",
            polygon,
            stop_line_type="TRAFFIC_LIGHT",
            ped_crossing_tokens=[crossing],
            traffic_light_tokens=[light["token"]],
            road_block_token=block,
        )


def _pieces(curve: Curve) -> list[Curve]:
    return [curve.section(a, b) for a, b in zip(curve.knots, curve.knots[1:])]


def _arcline(piece: Curve) -> dict:
    """One piece of constant curvature as a path of three arcs, the others of which have no length."""
    end = piece.pose(piece.length)
    curvature, length = piece.curvatures[0], piece.length
    return {
        "start_pose": list(piece.start),
        "end_pose": end.tolist(),
        "shape": "RSR" if curvature < 0 else "LSL",
        "radius": 1 / abs(curvature) if curvature else 999.999,
        "segment_length": [length, 0.0, 0.0] if curvature else [0.0, length, 0.0],
    }


def _meets(poses: np.ndarray, pose: np.ndarray) -> np.ndarray:
    """(n,) whether a lane that ends or starts at `pose` goes on at each of the poses (n, 3)."""
    near = np.hypot(*(poses - pose)[:, :2].T) < 0.05
    return near & (np.cos(poses[:, 2] - pose[2]) > 0.99)
