"""TensorRT's calibration caches: text, one tensor a line, read leniently and written exactly.

TensorRT's own reader is not public; trtexec's is (readScalesFromCalibrationCache in
samples/common/sampleEngines.cpp of github.com/NVIDIA/TensorRT, the same from 8.0 to 10.x): a line
is split at its last colon, up to eight hexadecimal digits follow, and of two lines of one name the
last counts (``tensorScales[name] = ...``). NVIDIA's own caches (qat2ptq.cache of
github.com/NVIDIA-AI-IOT/cuDLA-samples) end each line with a line feed and write no leading zeros.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit._files import regular, replacing
from edgekit._listed import listed
from edgekit.errors import DataError
from edgekit.quantize._cache_line import bad_scale, check_name, checked_scale
from edgekit.quantize._cache_version import major_of, tensorrt_number
from edgekit.quantize._scales import hex_of, is_scale
from edgekit.quantize._types import Scales

__all__ = [
    "ALGORITHM",
    "CalibrationCache",
    "cache_of",
    "load_cache",
    "parse_cache",
    "tensorrt_number",
    "write_cache",
]

#: The calibrator that a DLA needs, as a header names it.
ALGORITHM = "EntropyCalibration2"
_ALGORITHMS = frozenset({ALGORITHM, "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration"})
_HEADER = re.compile(r"TRT-(\d{1,9})-(\w+)\s*")
_LINE = re.compile(r"(.+):\s*(?:0[xX])?([0-9a-fA-F]{1,8})\s*", re.DOTALL)


@dataclass(frozen=True, eq=False)
class CalibrationCache:
    """A calibration cache.

    Attributes:
        version: NV_TENSORRT_VERSION of its header: 8602, 100300.
        algorithm: The calibrator of its header: "EntropyCalibration2".
        scales: Scale (amax / 127, float32) by tensor name, in file order; 0 where a tensor has
            none: what reads or writes it does not run in INT8.
        notes: What was odd in the file, for people.
    """

    version: int
    algorithm: str
    scales: Mapping[str, float]
    notes: tuple[str, ...] = ()

    @property
    def header(self) -> str:
        """The first line."""
        return f"TRT-{self.version}-{self.algorithm}"

    @property
    def text(self) -> str:
        """The file as TensorRT writes it.

        Raises:
            DataError: "cache.name": a tensor name that a line cannot hold; "cache.scale": what is
                no scale.
        """
        lines = [self.header]
        for name, scale in self.scales.items():
            check_name(name)
            lines.append(f"{name}: {hex_of(checked_scale(name, scale))}")
        return "\n".join(lines) + "\n"

    def for_tensorrt(self, version: str) -> CalibrationCache:
        """Returns the cache with the header that ``version`` and IInt8EntropyCalibrator2 write."""
        return replace(self, version=tensorrt_number(version), algorithm=ALGORITHM)

    def complaint(self, version: str) -> str:
        """Returns what TensorRT ``version`` says of the header on a DLA; empty where nothing.

        TensorRT does not use a cache of another calibrator, and calibrates again: "Calibration
        table does not match calibrator algorithm type". Without data that fails, or gives the
        ranges of trtexec's random inputs. TRT-8600 is reported to be refused so by 10.3, and
        TRT-100300 to be read by 10.16: the major number counts.
        """
        wanted = tensorrt_number(version)
        if self.algorithm == ALGORITHM and major_of(self.version) == major_of(wanted):
            return ""
        return (
            f"the cache's header {self.header} is not TRT-{wanted}-{ALGORITHM}: TensorRT {version} "
            "would ignore the file and calibrate again"
        )


def load_cache(path: str | Path) -> CalibrationCache:
    """Reads a calibration cache.

    Lenient as TensorRT: line ends may be CRLF, lines empty, digits upper case or without leading
    zeros, the last line unfinished; names may hold colons and spaces. Of a tensor's lines the
    last counts, and ``notes`` tells of it. A scale with which a code would stand for infinity (an
    attention mask's, measured by TensorRT) is none, and ``notes`` tells of that, too.

    Raises:
        DataError: The file cannot be read, or is no cache ("cache.header", "cache.line",
            "cache.scale" name the line).
    """
    try:
        text = regular(Path(path)).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is no text"
        raise DataError(
            f"cannot read the calibration cache: {why}",
            code="cache.unreadable",
            where=str(path),
            hint="give the text file that TensorRT's calibrator or edgekit calibrate wrote",
        ) from error
    return parse_cache(text, str(path))


def parse_cache(text: str, where: str = "") -> CalibrationCache:
    """Returns the cache that stands in a text.

    Args:
        text: A file's content.
        where: What errors call it.

    Raises:
        DataError: As :func:`load_cache`.
    """
    # a name may have other characters that Python takes for line ends
    lines = text.split("\n")
    header = _HEADER.fullmatch(lines[0])
    if header is None:
        raise DataError(
            "this is not a TensorRT calibration cache",
            code="cache.header",
            where=f"{where}:1",
            hint="the first line reads like TRT-8600-EntropyCalibration2",
        )
    version, algorithm = int(header[1]), header[2]
    scales: dict[str, float] = {}
    twice: dict[str, int] = {}
    large: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            name, scale = _parse(line, f"{where}:{number}")
            if scale and not is_scale(scale):
                large.append(f"{name!r} ({scale:.3g}, line {number})")
                scale = 0.0
            if name in scales and scales[name] != scale:
                twice[name] = number
            scales[name] = scale
    notes = [
        f"{name!r} stands there with several scales: the last one counts (line {number})"
        for name, number in twice.items()
    ]
    if large:
        notes.append(
            "too large for the scale of an 8-bit code, and taken for none: " + listed(large, 4)
        )
    if algorithm not in _ALGORITHMS:
        notes.append(f"no calibrator of TensorRT's is called {algorithm!r}")
    return CalibrationCache(version, algorithm, scales, tuple(notes))


def _parse(line: str, where: str) -> tuple[str, float]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise DataError(
            f"cannot read {line[:80]!r}",
            code="cache.line",
            where=where,
            hint="a line is NAME: HEX, the float32 bits of the scale, such as input: 3c010a14",
        )
    name, digits = found[1], found[2]
    scale = float(struct.unpack(">f", int(digits, 16).to_bytes(4, "big"))[0])
    if not (math.isfinite(scale) and scale >= 0):
        raise bad_scale(name, scale, where)
    return name, scale


def cache_of(scales: Mapping[str, float], tensorrt: str) -> CalibrationCache:
    """Returns the cache that IInt8EntropyCalibrator2, the calibrator a DLA needs, reads back.

    The algorithm in the header is always EntropyCalibration2, whatever measured the scales:
    TensorRT ignores a cache whose header names another calibrator than the one asking.

    Args:
        scales: Scale by tensor name.
        tensorrt: The release that will read it.

    Raises:
        DataError: No TensorRT version; "cache.scale": what is no scale, or none in float32.
    """
    rounded = {name: checked_scale(name, scale) for name, scale in scales.items()}
    return CalibrationCache(tensorrt_number(tensorrt), ALGORITHM, rounded)


def write_cache(
    scales: Scales | CalibrationCache, path: str | Path, tensorrt: str | None = None
) -> None:
    """Writes a calibration cache; a reader sees the old file or the new one, never a part.

    Args:
        scales: Scales, which get the header of :func:`cache_of`, or a cache as it is.
        path: The file.
        tensorrt: The release that will read it; for a cache, None keeps its header.

    Raises:
        DataError: "cache.name": a tensor name that a line cannot hold; "cache.scale": what is no
            scale; or the file cannot be written.
    """
    if isinstance(scales, CalibrationCache):
        cache = scales if tensorrt is None else scales.for_tensorrt(tensorrt)
    else:
        if tensorrt is None:
            raise TypeError("scales have no TensorRT version of their own: give one")
        cache = cache_of(scales.scales, tensorrt)
    content = cache.text.encode()
    try:
        with replacing(Path(path)) as part:
            part.write_bytes(content)
    except OSError as error:
        raise DataError(
            f"cannot write the calibration cache: {error.strerror}",
            code="cache.unwritable",
            where=str(path),
            hint="check the folder and its free space",
        ) from error
