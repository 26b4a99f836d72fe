"""TensorRT releases as numbers, as headers of calibration caches have them."""

from __future__ import annotations

from edgekit.errors import DataError

__all__ = ["major_of", "tensorrt_number"]


def tensorrt_number(version: str) -> int:
    """Returns NV_TENSORRT_VERSION: "8.6.2" is 8602, and since version 10, "10.3" is 100300.

    Raises:
        DataError: ``version`` is not up to three numbers with dots.
    """
    try:
        major, minor, patch = [*map(int, version.split(".")), 0, 0][:3]
        if min(major, minor, patch) < 0 or major > 99 or max(minor, patch) > 99:
            raise ValueError
    except ValueError:
        raise DataError(
            f"{version!r} is not a TensorRT version",
            code="tensorrt.version",
            hint="write it like 8.6.2 or 10.3",
        ) from None
    if major >= 10:
        return major * 10000 + minor * 100 + patch
    return major * 1000 + minor * 100 + patch


def major_of(number: int) -> int:
    """Returns the major release of an NV_TENSORRT_VERSION."""
    return number // 10000 if number >= 100000 else number // 1000
