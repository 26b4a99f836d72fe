"""INT8 scales from a calibration cache: the calibrator that serves it, and the cache's text."""

from __future__ import annotations

import re
import struct
from typing import Any, Callable, Dict, List, Optional, Sequence

from ._errors import DeviceError

__all__ = ["calibrator", "for_release", "missing_scales", "read_scales", "version_number"]

_HEADER = re.compile(r"TRT-(\d{1,9})-(\w+)\s*\Z")
_MISSING = re.compile(r"Missing scale and zero-point for tensor (.+?)(?:, expect fall back|\Z)")
_ALGORITHM = "EntropyCalibration2"


def version_number(version: str) -> int:
    """NV_TENSORRT_VERSION of a release: "8.6.1" is 8601, "10.3.0.30" is 100300."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:3]]
    major, minor, patch = [*parts, 0, 0, 0][:3]
    # two digits for each part since version 10 (NvInferVersion.h)
    return (
        major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch
    )


def for_release(cache: bytes, version: str) -> bytes:
    """The cache with the header that this release's IInt8EntropyCalibrator2 writes itself.

    Raises:
        DeviceError: "build.calibration": no calibration cache.
    """
    first, separator, rest = cache.partition(b"\n")
    if not separator or not _HEADER.match(first.decode("utf-8", "replace")):
        raise DeviceError(
            "this is no calibration cache: it does not begin with TRT-VERSION-ALGORITHM",
            code="build.calibration",
        )
    header = "TRT-{}-{}".format(version_number(version), _ALGORITHM)
    return header.encode("ascii") + b"\n" + rest


def read_scales(cache: bytes) -> Dict[str, float]:
    """Scales by tensor name, as trtexec reads them: a line is split at its last colon.

    Raises:
        DeviceError: "build.calibration".
    """
    found = {}
    for number, line in enumerate(cache.decode("utf-8", "surrogateescape").split("\n")[1:], 2):
        if not line.strip():
            continue
        name, colon, digits = line.rpartition(":")
        try:
            if not colon:
                raise ValueError
            found[name] = struct.unpack(">f", struct.pack(">I", int(digits, 16)))[0]
        except (ValueError, struct.error) as error:
            raise DeviceError(
                "line {} of the calibration cache is no tensor and scale".format(number),
                code="build.calibration",
            ) from error
    return found


def missing_scales(messages: Sequence[str]) -> List[str]:
    """Tensors that the builder found no scale for, from its warnings."""
    found = (_MISSING.search(" ".join(text.split())) for text in messages)
    return list(dict.fromkeys(match.group(1) for match in found if match))


def calibrator(trt: Any, cache: bytes, asked: Callable[[List[str]], None]) -> Optional[Any]:
    """An IInt8EntropyCalibrator2 that has no data, only ``cache``; None where releases have none.

    Args:
        trt: TensorRT's module.
        cache: What it serves.
        asked: Told of the network's inputs when TensorRT wants to calibrate after all, which
            means that it did not take the cache. TensorRT swallows what these methods raise, so
            this must not raise.
    """
    if not hasattr(trt, "IInt8EntropyCalibrator2"):
        return None

    class Served(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]  # known only when it runs
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)

        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: List[str]) -> Optional[List[int]]:
            asked(list(names))
            return None

        def read_calibration_cache(self) -> bytes:
            return cache

        def write_calibration_cache(self, cache: Any) -> None:
            # nothing new can come: there is no data
            return None

    return Served()
