"""TensorRT's calibration caches: text, one tensor a line, read leniently and written exactly;
compared, merged and edited.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from edgekit.dla.scales import LEVELS
from edgekit.errors import DataError, UsageError
from edgekit.files import regular, replacing
from edgekit.quantize.scales import Scales, float32, hex_of, is_scale
from edgekit.text import listed

#: The calibrator that a DLA needs, as a header names it.
ALGORITHM = "EntropyCalibration2"
_ALGORITHMS = frozenset({ALGORITHM, "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration"})
_HEADER = re.compile(r"TRT-(\d{1,9})-(\w+)\s*")
_LINE = re.compile(r"(.+):\s*(?:0[xX])?([0-9a-fA-F]{1,8})\s*", re.DOTALL)
#: What counts where several caches have a tensor.
POLICIES = ("last", "first", "max", "error")


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


def bad_scale(name: str, scale: float, where: str) -> DataError:
    """Returns the error that says so."""
    return DataError(
        f"tensor {name!r} has the scale {scale}",
        code="cache.scale",
        where=where,
        hint="a scale is a positive number up to 2.65e+36: the largest magnitude divided by 127",
    )


def checked_scale(name: str, scale: float) -> float:
    """Returns the float32 of a tensor's scale, or the 0 that says that it has none.

    Raises:
        DataError: "cache.scale": it is neither (see ``is_scale``).
    """
    if scale and not is_scale(scale):
        raise bad_scale(name, scale, name)
    return float32(scale)


def check_name(name: str) -> None:
    """Checks that a line can hold a tensor's name.

    Raises:
        DataError: "cache.name": it is empty, has a line break, or is no Unicode text.
    """
    try:
        name.encode()
        fault = "has a line break" if "\n" in name or "\r" in name else ""
    except UnicodeEncodeError:
        fault = "is no Unicode text"
    fault = fault if name else "is empty"
    if fault:
        raise DataError(
            f"tensor name {name!a} {fault}, which a calibration cache cannot hold",
            code="cache.name",
            where=name if name.isprintable() else ascii(name),
            hint="rename the tensor in the model",
        )


# TensorRT's calibration caches: text, one tensor a line, read leniently and written exactly.
#
# TensorRT's own reader is not public; trtexec's is (readScalesFromCalibrationCache in
# samples/common/sampleEngines.cpp of github.com/NVIDIA/TensorRT, the same from 8.0 to 10.x): a line
# is split at its last colon, up to eight hexadecimal digits follow, and of two lines of one name
# the last counts (``tensorScales[name] = ...``). NVIDIA's own caches (qat2ptq.cache of
# github.com/NVIDIA-AI-IOT/cuDLA-samples) end each line with a line feed and write no leading zeros.


@dataclass(frozen=True, eq=False)
class CalibrationCache:
    """A calibration cache.

    Attributes:
        version: NV_TENSORRT_VERSION of its header: 8602, 100300.
        algorithm: The calibrator of its header: "EntropyCalibration2".
        scales: Scale (amax / 127, float32) by tensor name, in file order; 0 if a tensor has
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
        """Returns what TensorRT ``version`` says of the header on a DLA; empty if nothing.

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
    last counts, and ``notes`` reports it. A scale with which a code would stand for infinity (an
    attention mask's, measured by TensorRT) is none, and ``notes`` reports that, too.

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
    TensorRT ignores a cache whose header names another calibrator than its own.

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


@dataclass(frozen=True, slots=True)
class CacheDiff:
    """How one cache became another.

    Attributes:
        headers: Both first lines.
        added: Scales of tensors that only the second has, in its order.
        removed: Scales of tensors that only the first has, in its order.
        changed: (tensor, first scale, second scale), the largest ratio first.
        equal: Tensors with the same scale, or one within the tolerance.
    """

    headers: tuple[str, str]
    added: Mapping[str, float]
    removed: Mapping[str, float]
    changed: tuple[tuple[str, float, float], ...]
    equal: int

    @property
    def same_scales(self) -> bool:
        """Whether no scale differs; the headers may."""
        return not (self.added or self.removed or self.changed)


def diff(first: CalibrationCache, second: CalibrationCache, *, tolerance: float = 0.0) -> CacheDiff:
    """Compares two caches.

    Args:
        first: The old one.
        second: The new one.
        tolerance: Scales whose larger is at most ``1 + tolerance`` times the smaller are equal.
    """
    changed = []
    equal = 0
    for name, old in first.scales.items():
        new = second.scales.get(name)
        if new is None:
            continue
        if max(old, new) <= min(old, new) * (1 + tolerance):
            equal += 1
        else:
            changed.append((name, old, new))
    # stable: tensors of the same ratio keep the file's order
    changed.sort(key=lambda row: -abs(_bits(row[1], row[2])))
    return CacheDiff(
        headers=(first.header, second.header),
        added={n: s for n, s in second.scales.items() if n not in first.scales},
        removed={n: s for n, s in first.scales.items() if n not in second.scales},
        changed=tuple(changed),
        equal=equal,
    )


def _bits(old: float, new: float) -> float:
    return math.log2(new) - math.log2(old) if old and new else math.inf


def merge(
    caches: Sequence[CalibrationCache], *, policy: str = "last", names: Sequence[str] = ()
) -> CalibrationCache:
    """Returns the union of caches, with the header of the first.

    A scale of 0 says that there was no range, so it never hides another cache's scale.

    Args:
        caches: One or more.
        policy: Of several scales for a tensor "last" or "first" (in the order of the caches) or
            the "max" counts; "error" refuses them unless they are equal.
        names: What errors call the caches.

    Raises:
        UsageError: No cache, or an unknown policy.
        DataError: "cache.conflict": with "error", a tensor has different scales.
    """
    if not caches or policy not in POLICIES:
        raise UsageError(
            f"unknown policy {policy!r}" if caches else "there is no cache to merge",
            code="cache.policy",
            hint=f"--policy {'|'.join(POLICIES)}" if caches else "name at least one cache",
        )
    titles = [*names, *(f"cache {n + 1}" for n in range(len(names), len(caches)))]
    merged: dict[str, float] = {}
    source: dict[str, str] = {}
    for title, cache in zip(titles, caches, strict=False):
        for name, scale in cache.scales.items():
            old = merged.get(name, 0.0)
            if policy == "error" and old and scale and old != scale:
                raise DataError(
                    f"tensor {name!r} has the scale {old:g} in {source[name]} and {scale:g} in "
                    f"{title}",
                    code="cache.conflict",
                    where=name,
                    hint="choose with --policy last, first or max",
                )
            if policy == "max":
                taken = max(old, scale)
            elif policy == "first":
                taken = old or scale
            else:
                taken = scale or old
            merged[name] = taken
            source.setdefault(name, title)
    notes = list(dict.fromkeys(note for cache in caches for note in cache.notes))
    headers = {cache.header: None for cache in caches}
    if len(headers) > 1:
        notes.append(f"headers differ ({', '.join(headers)}): the first one is kept")
    return replace(caches[0], scales=merged, notes=tuple(notes))


def edit(
    cache: CalibrationCache,
    *,
    drop: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    amax: Mapping[str, float] | None = None,
) -> CalibrationCache:
    """Returns a cache with tensors dropped, then renamed, then set.

    Args:
        cache: A cache.
        drop: Names, or shell patterns of names.
        rename: New name by old one; a tensor keeps its place.
        amax: Largest magnitude by tensor, whose 127th part becomes the scale; a tensor that is
            not there is added at the end.

    Raises:
        UsageError: A name or pattern fits no tensor ("cache.unknown"), a new name is taken
            ("cache.taken"), or a magnitude is not positive ("cache.amax").
    """
    scales = dict(cache.scales)
    for pattern in drop:
        gone = [pattern] if pattern in scales else [n for n in scales if fnmatchcase(n, pattern)]
        if not gone:
            raise _unknown(pattern, scales)
        for name in gone:
            del scales[name]
    moved = dict(rename or {})
    for old in moved:
        if old not in scales:
            raise _unknown(old, scales)
    renamed: dict[str, float] = {}
    for name, scale in scales.items():
        new = moved.get(name, name)
        if new in renamed:
            raise UsageError(
                f"two tensors would be called {new!r}",
                code="cache.taken",
                where=new,
                hint="drop or rename the other one, too",
            )
        renamed[new] = scale
    for name, value in (amax or {}).items():
        scale = value / LEVELS
        if not is_scale(scale):
            raise UsageError(
                f"the largest magnitude of {name!r} cannot be {value}",
                code="cache.amax",
                where=name,
                hint="a positive number, small enough for a scale: the range is -AMAX to AMAX",
            )
        renamed[name] = float32(scale)
    return replace(cache, scales=renamed)


def _unknown(name: str, scales: Mapping[str, float]) -> UsageError:
    near = " or ".join(map(repr, get_close_matches(name, scales)))
    return UsageError(
        f"no tensor of the cache is called {name!r}",
        code="cache.unknown",
        where=name,
        hint=f"did you mean {near}?" if near else "edgekit calibrate show CACHE lists them",
    )
