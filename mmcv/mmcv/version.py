"""The version of this build of mmcv: upstream's release number, then ours."""

from packaging.version import Version

__all__ = ["__version__", "parse_version_info", "version_info"]

__version__ = "2.1.0+rocm1"


def parse_version_info(version_str: str, length: int = 4) -> tuple[int | str, ...]:
    """Splits a version into comparable parts, without its local label.

    Args:
        version_str: for example "2.1.0+rocm1" or "2.0.0rc4".
        length: how many release numbers to return, filled up with zeros.

    Returns:
        `length` release numbers, then the kind and number of a pre-release ("rc", 4) or
        post-release ("post", 1), or (0, 0).

    Raises:
        packaging.version.InvalidVersion: `version_str` is no version.
    """
    version = Version(version_str)
    release = (version.release + (0,) * length)[:length]
    if version.pre is not None:
        return release + version.pre
    if version.post is not None:
        return (*release, "post", version.post)
    return (*release, 0, 0)


version_info = parse_version_info(__version__)[:3]
