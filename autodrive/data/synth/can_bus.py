"""CAN bus messages of a drive, in the files and units of the nuScenes CAN bus expansion."""

import numpy as np

from autodrive.data.synth.world import Ego

GRAVITY = 9.81  # m/s², which the accelerometer reads on z
WHEELBASE = 2.588  # m, Renault Zoe
STEERING_RATIO = 15.0
WHEEL_RADIUS = 0.305  # m


def can_bus_messages(ego: Ego, start: int, duration: float) -> dict[str, list | dict]:
    """All messages of a scene by kind, made from the trajectory itself.

    Args:
        start: time of the first key frame, µs.
        duration: of the scene, s; messages begin 0.1 s before it and end 0.1 s after it.

    Velocity, acceleration and rotation rate are in the ego's frame (m/s, m/s², rad/s), position and orientation in the
    global one; the acceleration holds gravity, as in nuScenes.
    """
    messages = {
        "pose": _pose(ego, start, duration, rate=50),
        "ms_imu": _imu(ego, start, duration, rate=100),
        "steeranglefeedback": _steering(ego, start, duration, rate=100),
        "vehicle_monitor": _monitor(ego, start, duration, rate=2),
        "zoesensors": _sensors(ego, start, duration, rate=100),
        "zoe_veh_info": _wheels(ego, start, duration, rate=100),
    }
    summary = {}
    for kind, content in messages.items():
        span = (content[-1]["utime"] - content[0]["utime"]) * 1e-6
        summary[kind] = {
            "message_count": len(content),
            "message_freq": (len(content) - 1) / span,
            "timespan": span,
            "var_stats": {key: _statistics(content, key) for key in content[0] if key != "utime"},
        }
    route = ego.curve.pose(np.arange(0.0, ego.curve.length))[:, :2]
    return {**messages, "meta": summary, "route": np.round(route, 3).tolist()}


def _times(start: int, duration: float, rate: int) -> tuple[np.ndarray, list[int]]:
    """Seconds in the scene, and µs of the clock."""
    microseconds = np.arange(-100_000, int(duration * 1e6) + 100_001, 1_000_000 // rate)
    return microseconds * 1e-6, [start + int(m) for m in microseconds]


def _motion(ego: Ego, t: np.ndarray) -> dict[str, np.ndarray]:
    speed, zero = ego.motion.speed_at(t), np.zeros_like(t)
    yaw_rate = ego.yaw_rate(t)
    yaw = ego.pose(t)[:, 2]
    return {
        "speed": speed,
        "yaw_rate": yaw_rate,
        "velocity": np.stack([speed, zero, zero], axis=1),
        "acceleration": np.stack(
            [ego.motion.acceleration_at(t), speed * yaw_rate, zero + GRAVITY], axis=1
        ),
        "rotation_rate": np.stack([zero, zero, yaw_rate], axis=1),
        "orientation": np.stack([np.cos(yaw / 2), zero, zero, np.sin(yaw / 2)], axis=1),
        "steering": np.arctan(WHEELBASE * ego.curve.curvature(ego.s(t))) * STEERING_RATIO,
    }


def _records(utimes: list[int], **columns: np.ndarray) -> list[dict]:
    lists = {key: np.asarray(column).round(9).tolist() for key, column in columns.items()}
    return [
        {**{key: values[i] for key, values in lists.items()}, "utime": utime}
        for i, utime in enumerate(utimes)
    ]


def _pose(ego: Ego, start: int, duration: float, rate: int) -> list[dict]:
    t, utimes = _times(start, duration, rate)
    motion = _motion(ego, t)
    position = np.column_stack([ego.pose(t)[:, :2], np.zeros(len(t))])
    return _records(
        utimes,
        accel=motion["acceleration"],
        orientation=motion["orientation"],
        pos=position,
        rotation_rate=motion["rotation_rate"],
        vel=motion["velocity"],
    )


def _imu(ego: Ego, start: int, duration: float, rate: int) -> list[dict]:
    t, utimes = _times(start, duration, rate)
    motion = _motion(ego, t)
    return _records(
        utimes,
        linear_accel=motion["acceleration"],
        q=motion["orientation"],
        rotation_rate=motion["rotation_rate"],
    )


def _steering(ego: Ego, start: int, duration: float, rate: int) -> list[dict]:
    t, utimes = _times(start, duration, rate)
    return _records(utimes, value=_motion(ego, t)["steering"])


def _monitor(ego: Ego, start: int, duration: float, rate: int) -> list[dict]:
    t, utimes = _times(start, duration, rate)
    motion = _motion(ego, t)
    forward = motion["acceleration"][:, 0]
    rpm = motion["speed"] / WHEEL_RADIUS / (2 * np.pi) * 60
    constant = np.zeros(len(t), int)
    return _records(
        utimes,
        available_distance=constant + 120,
        battery_level=constant + 80,
        brake=np.rint(np.clip(-forward, 0, None) * 8).astype(int),
        brake_switch=np.where(forward < 0, 2, 1),
        gear_position=constant + 7,
        left_signal=constant,
        rear_left_rpm=rpm,
        rear_right_rpm=rpm,
        right_signal=constant,
        steering=np.degrees(motion["steering"]),
        steering_speed=constant,
        throttle=np.rint(np.clip(forward, 0, None) * 100).astype(int),
        vehicle_speed=motion["speed"] * 3.6,
        yaw_rate=np.degrees(motion["yaw_rate"]),
    )


def _sensors(ego: Ego, start: int, duration: float, rate: int) -> list[dict]:
    t, utimes = _times(start, duration, rate)
    motion = _motion(ego, t)
    forward = motion["acceleration"][:, 0]
    return _records(
        utimes,
        brake_sensor=np.clip(-forward, 0, None) / 8,
        steering_sensor=motion["steering"],
        throttle_sensor=np.clip(forward, 0, None) / 8,
    )


def _wheels(ego: Ego, start: int, duration: float, rate: int) -> list[dict]:
    t, utimes = _times(start, duration, rate)
    motion = _motion(ego, t)
    rpm = motion["speed"] / WHEEL_RADIUS / (2 * np.pi) * 60
    return _records(
        utimes,
        FL_wheel_speed=rpm,
        FR_wheel_speed=rpm,
        RL_wheel_speed=rpm,
        RR_wheel_speed=rpm,
        longitudinal_accel=motion["acceleration"][:, 0],
        odom=ego.motion.distance(t),
        odom_speed=motion["speed"] * 3.6,
        steer_corrected=np.degrees(motion["steering"]),
        transversal_accel=motion["acceleration"][:, 1],
    )


def _statistics(messages: list[dict], key: str) -> dict:
    values = np.array([message[key] for message in messages], dtype=float)
    steps = np.abs(np.diff(values, axis=0))
    return {
        "max": values.max(axis=0).tolist(),
        "mean": values.mean(axis=0).tolist(),
        "min": values.min(axis=0).tolist(),
        "std": values.std(axis=0).tolist(),
        "diff_max": steps.max(axis=0).tolist(),
        "diff_mean": steps.mean(axis=0).tolist(),
        "diff_min": steps.min(axis=0).tolist(),
        "diff_std": steps.std(axis=0).tolist(),
    }
