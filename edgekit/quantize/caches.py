"""TensorRT's calibration caches: text with a tensor per line, read leniently and written exactly;
compared, merged and edited. Also a network's scales from a cache: listed, inferred and missing; for
a rewritten network also by tensors that hold the same values.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.dla.scales import LEVELS
from edgekit.errors import DataError, EdgekitError, UsageError
from edgekit.files import read_file, replacing
from edgekit.network.synthetic import synthetic_inputs
from edgekit.quantize.calibration.parts import parts, run_parts
from edgekit.quantize.missing_scales import (
    FLOATS,
    MissingScale,
    find_missing_scales,
    propagate_scales,
    with_same_values,
)
from edgekit.quantize.scales import Scales, hex_bits, is_scale, make_scales, to_float32
from edgekit.targets.releases import parse_version
from edgekit.text import counted, listed
from edgekit_device.versions import tensorrt_number

if TYPE_CHECKING:
    from edgekit.network.model import Model, Network


#: The calibrator that a DLA needs, as a header names it.
ALGORITHM = "EntropyCalibration2"
_ALGORITHMS = frozenset({ALGORITHM, "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration"})
_LARGEST = 64 << 20  # bytes of a file; a line has a name and eight digits
_HEADER = re.compile(r"TRT-(\d{1,9})-(\w+)\s*")
# the first group is greedy: the last colon ends the name
_LINE = re.compile(r"(.+):\s*(?:0[xX])?([0-9a-fA-F]{1,8})\s*", re.DOTALL)
#: Which scale counts if several caches have a tensor.
POLICIES = ("last", "first", "max", "error")
# number of order statistics that distinguish tensors; float32 sums in another order differ by
# far less than the tolerance, different tensors by far more
_STATISTICS = 1025
_TOLERANCE = 1e-4
# TensorRT's name for the result of a layer without a name in the ONNX model
_UNNAMED = "(Unnamed Layer*"
_SHOWN = 3


def version_number(version: str) -> int:
    """Returns NV_TENSORRT_VERSION of a release: "8.6.2" is 8602, and "10.3" is 100300.

    Raises:
        UsageError: ``version`` is no version ("tensorrt.version").
    """
    return tensorrt_number(parse_version(version))


def major_release(number: int) -> int:
    """Returns the major release of an NV_TENSORRT_VERSION."""
    return number // 10000 if number >= 100000 else number // 1000


def bad_scale(name: str, scale: float, where: str) -> DataError:
    """Returns the "cache.scale" error."""
    return DataError(
        f"tensor {name!r} has the scale {scale}",
        code="cache.scale",
        where=where,
        hint="a scale must be a positive number up to 2.65e+36: the largest magnitude divided by "
        "127",
    )


def check_scale(name: str, scale: float) -> float:
    """Returns the float32 of a tensor's scale, or 0 if it has none.

    Raises:
        DataError: "cache.scale": not a scale (see ``is_scale``) and not 0.
    """
    if scale and not is_scale(scale):
        raise bad_scale(name, scale, name)
    return to_float32(scale)


def check_name(name: str) -> None:
    """Checks that a line can hold a tensor's name.

    Raises:
        DataError: "cache.name": it is empty, has a line break, or is no Unicode text.
    """
    try:
        name.encode()
        fault = "contains a line break" if "\n" in name or "\r" in name else ""
    except UnicodeEncodeError:
        fault = "is not Unicode text"
    fault = fault if name else "is empty"
    if fault:
        raise DataError(
            f"tensor name {name!a} {fault}, which is not possible in a calibration cache",
            code="cache.name",
            where=name if name.isprintable() else ascii(name),
            hint="rename the tensor in the model",
        )


@dataclass(frozen=True, eq=False)
class CalibrationCache:
    """A calibration cache.

    Attributes:
        version: NV_TENSORRT_VERSION of its header: 8602, 100300.
        algorithm: The calibrator of its header: "EntropyCalibration2".
        scales: Scale (amax / 127, float32) by tensor name, in file order; 0 if a tensor has
            none: layers that read or write it do not run in INT8.
        notes: Irregularities of the file, as sentences.
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
            DataError: "cache.name": a tensor name that a line cannot hold; "cache.scale": an
                invalid scale.
        """
        lines = [self.header]
        for name, scale in self.scales.items():
            check_name(name)
            lines.append(f"{name}: {hex_bits(check_scale(name, scale))}")
        return "\n".join(lines) + "\n"

    def for_tensorrt(self, version: str) -> CalibrationCache:
        """Returns the cache with the header that ``version`` and IInt8EntropyCalibrator2 write."""
        return replace(self, version=version_number(version), algorithm=ALGORITHM)

    def complaint(self, version: str) -> str:
        """Returns the complaint of TensorRT ``version`` about the header on a DLA; empty if none.

        TensorRT does not use a cache of another calibrator, and calibrates again: "Calibration
        table does not match calibrator algorithm type". Without data this fails, or gives the
        ranges of trtexec's random inputs. According to reports, 10.3 refuses TRT-8600 in this way,
        and 10.16 reads TRT-100300: the major number counts.
        """
        wanted = version_number(version)
        if self.algorithm == ALGORITHM and major_release(self.version) == major_release(wanted):
            return ""
        return (
            f"the cache's header {self.header} is not TRT-{wanted}-{ALGORITHM}: TensorRT {version} "
            "would ignore the file and calibrate again"
        )


def load_cache(path: str | Path) -> CalibrationCache:
    """Reads a calibration cache.

    Lenient as TensorRT: line ends may be CRLF, lines empty, digits upper case or without leading
    zeros, the last line unfinished; names may hold colons and spaces. Of a tensor's lines the
    last counts, and ``notes`` reports it. A scale with infinite dequantised values (an attention
    mask's, measured by TensorRT) counts as no scale; ``notes`` reports that, too.

    Raises:
        DataError: The file cannot be read, or is no cache ("cache.header", "cache.line",
            "cache.scale" name the line).
    """
    try:
        # editors on Windows put a byte order mark at the start
        text = read_file(Path(path), _LARGEST).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "it is not text"
        raise DataError(
            f"cannot read the calibration cache: {why}",
            code="cache.unreadable",
            where=str(path),
            hint="give a text file from TensorRT's calibrator or edgekit calibrate",
        ) from error
    return parse_cache(text, str(path))


def parse_cache(text: str, where: str = "") -> CalibrationCache:
    """Returns the cache in a text.

    TensorRT's own reader is not public; trtexec's is (readScalesFromCalibrationCache in
    samples/common/sampleEngines.cpp of github.com/NVIDIA/TensorRT, the same from 8.0 to 10.x): a
    line is split at its last colon, up to eight hexadecimal digits follow, and of two lines of one
    name the last counts (``tensorScales[name] = ...``). NVIDIA's own caches (qat2ptq.cache of
    github.com/NVIDIA-AI-IOT/cuDLA-samples) end each line with a line feed and write no leading
    zeros.

    Args:
        text: A file's content.
        where: Its name in errors.

    Raises:
        DataError: As :func:`load_cache`.
    """
    # a name may have other characters that Python takes for line ends
    lines = text.split("\n")
    header = _HEADER.fullmatch(lines[0])
    if header is None:
        raise DataError(
            "not a TensorRT calibration cache",
            code="cache.header",
            where=f"{where}:1",
            hint="the first line must be like TRT-8600-EntropyCalibration2",
        )
    version, algorithm = int(header[1]), header[2]
    scales: dict[str, float] = {}
    twice: dict[str, int] = {}
    large: list[str] = []
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            name, scale = _parse_line(line, f"{where}:{number}")
            if scale and not is_scale(scale):
                large.append(f"{name!r} ({scale:.3g}, line {number})")
                scale = 0.0
            if name in scales and scales[name] != scale:
                twice[name] = number
            scales[name] = scale
    notes = [
        f"{name!r} has several scales; the last one is used (line {number})"
        for name, number in twice.items()
    ]
    if large:
        notes.append("too large for an 8-bit scale and therefore ignored: " + listed(large, 4))
    if algorithm not in _ALGORITHMS:
        notes.append(f"TensorRT has no calibrator called {algorithm!r}")
    return CalibrationCache(version, algorithm, scales, tuple(notes))


def _parse_line(line: str, where: str) -> tuple[str, float]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise DataError(
            f"cannot read {line[:80]!r}",
            code="cache.line",
            where=where,
            hint="a line must be NAME: HEX with the float32 bits of the scale, such as input: "
            "3c010a14",
        )
    name, digits = found[1], found[2]
    scale = float(struct.unpack(">f", int(digits, 16).to_bytes(4, "big"))[0])
    if not (math.isfinite(scale) and scale >= 0):
        raise bad_scale(name, scale, where)
    return name, scale


def make_cache(scales: Mapping[str, float], tensorrt: str) -> CalibrationCache:
    """Returns the cache that IInt8EntropyCalibrator2, the calibrator a DLA needs, reads back.

    The algorithm in the header is always EntropyCalibration2, for all calibration methods:
    TensorRT ignores a cache whose header names another calibrator than its own.

    Args:
        scales: Scale by tensor name.
        tensorrt: The release that will read it.

    Raises:
        DataError: No TensorRT version; "cache.scale": an invalid scale, also after rounding to
            float32.
    """
    rounded = {name: check_scale(name, scale) for name, scale in scales.items()}
    return CalibrationCache(version_number(tensorrt), ALGORITHM, rounded)


def write_cache(
    scales: Scales | CalibrationCache, path: str | Path, tensorrt: str | None = None
) -> None:
    """Writes a calibration cache atomically: a reader sees the old or the new file, never a part.

    Args:
        scales: Scales, which get the header of :func:`make_cache`, or a cache, written unchanged.
        path: The file.
        tensorrt: The release that will read it; for a cache, None keeps its header.

    Raises:
        DataError: "cache.name": a tensor name that a line cannot hold; "cache.scale": an invalid
            scale; or the file cannot be written.
    """
    if isinstance(scales, CalibrationCache):
        cache = scales if tensorrt is None else scales.for_tensorrt(tensorrt)
    else:
        if tensorrt is None:
            raise TypeError("give a TensorRT version; scales alone have none")
        cache = make_cache(scales.scales, tensorrt)
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
    """The differences between two caches.

    Attributes:
        headers: Both first lines.
        added: Scales of tensors that only the second cache has, in its order.
        removed: Scales of tensors that only the first cache has, in its order.
        changed: (tensor, first scale, second scale), the largest ratio first.
        equal: Tensors whose scales are the same within the tolerance.
    """

    headers: tuple[str, str]
    added: Mapping[str, float]
    removed: Mapping[str, float]
    changed: tuple[tuple[str, float, float], ...]
    equal: int

    @property
    def same_scales(self) -> bool:
        """True if no scale differs; the headers may."""
        return not (self.added or self.removed or self.changed)


def diff(first: CalibrationCache, second: CalibrationCache, *, tolerance: float = 0.0) -> CacheDiff:
    """Compares two caches.

    Args:
        first: The old cache.
        second: The new cache.
        tolerance: Scales are equal if the larger is at most ``1 + tolerance`` times the smaller.
    """
    changed = []
    equal = 0
    for name, old in first.scales.items():
        new = second.scales.get(name)
        if new is None:
            continue
        # without a division, so that a scale of 0 equals only 0
        if max(old, new) <= min(old, new) * (1 + tolerance):
            equal += 1
        else:
            changed.append((name, old, new))
    # stable: tensors of the same ratio keep the file's order
    changed.sort(key=lambda row: -abs(_bits_between(row[1], row[2])))
    return CacheDiff(
        headers=(first.header, second.header),
        added={n: s for n, s in second.scales.items() if n not in first.scales},
        removed={n: s for n, s in first.scales.items() if n not in second.scales},
        changed=tuple(changed),
        equal=equal,
    )


def _bits_between(old: float, new: float) -> float:
    return math.log2(new) - math.log2(old) if old and new else math.inf


def merge(
    caches: Sequence[CalibrationCache],
    *,
    policy: str = "last",
    names: Sequence[str] = (),
    tensorrt: str | None = None,
) -> CalibrationCache:
    """Returns the union of caches.

    A scale of 0 means that no range was measured, so it never hides another cache's scale.

    Args:
        caches: One or more.
        policy: Of several scales for a tensor "last" or "first" (in the order of the caches) or
            the "max" counts; "error" refuses them unless they are equal.
        names: Names of the caches in errors.
        tensorrt: The TensorRT release whose header it gets; None keeps the first cache's.

    Raises:
        UsageError: No cache, or an unknown policy.
        DataError: "cache.conflict": with "error", a tensor has different scales.
    """
    if not caches or policy not in POLICIES:
        raise UsageError(
            f"unknown policy {policy!r}" if caches else "no cache to merge",
            code="cache.policy",
            hint=f"--policy {'|'.join(POLICIES)}" if caches else "give at least one cache",
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
    if len(headers) > 1 and tensorrt is None:
        notes.append(f"headers differ ({', '.join(headers)}); the first one is used")
    found = replace(caches[0], scales=merged, notes=tuple(notes))
    return found if tensorrt is None else found.for_tensorrt(tensorrt)


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
        rename: New name by old name; a tensor keeps its place.
        amax: Largest magnitude by tensor; the scale becomes amax / 127. A tensor that the cache
            does not have is added at the end.

    Raises:
        UsageError: A name or pattern fits no tensor ("cache.unknown"), a new name is taken
            ("cache.taken"), or a magnitude is not positive ("cache.amax").
    """
    scales = dict(cache.scales)
    for pattern in drop:
        gone = [pattern] if pattern in scales else [n for n in scales if fnmatchcase(n, pattern)]
        if not gone:
            raise _unknown_tensor(pattern, scales)
        for name in gone:
            del scales[name]
    moved = dict(rename or {})
    for old in moved:
        if old not in scales:
            raise _unknown_tensor(old, scales)
    renamed: dict[str, float] = {}
    # a new dictionary, so that tensors may swap their names
    for name, scale in scales.items():
        new = moved.get(name, name)
        if new in renamed:
            raise UsageError(
                f"two tensors would have the name {new!r}",
                code="cache.taken",
                where=new,
                hint="drop or rename the other one as well",
            )
        renamed[new] = scale
    for name, value in (amax or {}).items():
        scale = value / LEVELS
        if not is_scale(scale):
            raise UsageError(
                f"the largest magnitude of {name!r} cannot be {value}",
                code="cache.amax",
                where=name,
                hint="give a positive number, small enough for a scale; the range is -AMAX to AMAX",
            )
        renamed[name] = to_float32(scale)
    return replace(cache, scales=renamed)


def _unknown_tensor(name: str, scales: Mapping[str, float]) -> UsageError:
    near = " or ".join(map(repr, get_close_matches(name, scales)))
    return UsageError(
        f"the cache has no tensor {name!r}",
        code="cache.unknown",
        where=name,
        hint=f"did you mean {near}?" if near else "list them: edgekit calibrate show CACHE",
    )


def equal_tensors(
    original: Model, rewritten: Model, old: Collection[str], new: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Returns the tensors of the original whose values tensors of the rewritten network hold.

    Both networks run once in FP32 on one seeded input. Tensors with equal element counts and the
    same sorted values, to float32's rounding, are the same up to their order: a Gemm that became a
    convolution, a transposed layout. A rewrite is proved for the network's outputs; for inner
    tensors this is evidence. It is used for ranges, which depend on the sorted values alone.

    Args:
        original: The original model.
        rewritten: The rewritten model, with the same inputs.
        old: Tensors of the original.
        new: Tensors of the rewritten model.

    Returns:
        The original's tensors by the rewritten network's tensor; only tensors with a match. Tensors
        that are always zero match none.
    """
    if not old or not new:
        return {}

    feed = next(iter(synthetic_inputs(rewritten, 1, 0)))
    try:
        wanted = dict(_fingerprints(rewritten, feed, new))
        # only tensors of these sizes can match; the others are not sorted
        sizes = {size for size, _ in wanted.values()}
        given: dict[int, list[tuple[str, np.ndarray]]] = {}
        for name, (size, values) in _fingerprints(original, feed, old, sizes):
            given.setdefault(size, []).append((name, values))
    # a network that cannot run here gives no evidence of equal values
    except EdgekitError:
        return {}
    found = {}
    for name, (size, values) in wanted.items():
        equal = tuple(
            other for other, print_ in given.get(size, ()) if _same_statistics(values, print_)
        )
        if equal:
            found[name] = equal
    return found


def _same_statistics(first: np.ndarray, second: np.ndarray) -> bool:
    largest = float(max(abs(first[0]), abs(first[-1])))
    return largest > 0 and float(abs(first - second).max()) <= _TOLERANCE * largest


def _fingerprints(
    model: Model,
    feed: Mapping[str, np.ndarray],
    names: Collection[str],
    sizes: Collection[int] | None = None,
) -> Iterator[tuple[str, tuple[int, np.ndarray]]]:
    """Yields each float tensor's name, size and order statistics, a bounded number at a time."""
    counts = _element_counts(model, names)
    chosen = [n for n in counts if sizes is None or counts[n] in sizes]
    for found, arrays in run_parts(parts(model, chosen), feed):
        for name, array in zip(found, arrays, strict=True):
            flat = np.sort(np.asarray(array, np.float32), axis=None)
            # evenly spaced ranks, so that a large activation is not kept whole
            places = np.linspace(0, flat.size - 1, min(flat.size, _STATISTICS)).astype(np.intp)
            yield name, (flat.size, flat[places])


def _element_counts(model: Model, names: Collection[str]) -> dict[str, int]:
    """Returns the number of elements of the float32 tensors among ``names``, in graph order."""
    graph = model.proto.graph
    written = {name for node in graph.node for name in node.output}
    found: dict[str, int] = {}
    values: list[Any] = [*graph.value_info, *graph.output]
    for value in values:
        kind = value.type.tensor_type
        if value.name in names and value.name in written and kind.elem_type == 1:
            count = 1
            for dim in kind.shape.dim:
                count *= dim.dim_value
            if count:
                found[value.name] = count
    return found


@dataclass(frozen=True, eq=False)
class CacheReading:
    """The scales that a calibration cache gives a network.

    Attributes:
        scales: The scales, listed and inferred; ``missing`` are the tensors of ``lacks``.
        lacks: Tensors without a scale that INT8 layers need.
        without: Tensors that the cache lists without a scale, and tensors with the same values:
            layers that read or write them run in FP16.
        listed: The tensors of ``without`` that the cache lists.
        free: Tensors that need no scale and have none.
        inferred: The origin of scales that the cache does not list, by tensor: "follows",
            "bound" or the original network's tensor of the same values.
        unknown: The cache's tensors that the network does not have, without ``unnamed``.
        unnamed: The cache's results of layers without a name, which TensorRT numbers itself
            ("(Unnamed Layer* 64) [Shuffle]_output").
    """

    scales: Scales
    lacks: tuple[MissingScale, ...]
    without: frozenset[str]
    listed: tuple[str, ...]
    free: frozenset[str]
    inferred: Mapping[str, str]
    unknown: tuple[str, ...]
    unnamed: tuple[str, ...]

    @property
    def judged(self) -> Mapping[str, float]:
        """The scales for ``dla.judge``: tensors that need no scale count as having one."""
        return {**dict.fromkeys(self.free, 1.0), **self.scales.scales}


def scales_from_cache(
    cache: CalibrationCache,
    network: Network,
    *,
    model: Model | None = None,
    original: Model | None = None,
    on_dla: Collection[str] | None = None,
    name: str = "",
) -> CacheReading:
    """Returns the scales that a cache gives a network.

    Tensors that the cache does not list get a scale if it follows exactly from others (moves,
    maxima, ReLU, concatenation). If the network was rewritten and the cache is of the original, a
    new tensor gets the scale of the original's tensor with the same values, or else a bound that
    can be proved.

    Args:
        cache: The cache.
        network: The layers that the scales are for.
        model: Their model, so that all its tensors are known; needed in addition to ``original``.
        original: The model before it was rewritten.
        on_dla: Layers that can run on the target's DLA; None if all may.
        name: The cache's file, for people.

    Raises:
        DataError: "cache.foreign": the cache names no tensor of either network; without a file's
            ``name`` it may be empty.
    """
    floats = [n for n, tensor in network.tensors.items() if tensor.dtype in FLOATS]
    old = original.graph.tensor_names if original is not None else frozenset()
    # layers lack some of the model's tensors: TensorRT merges layers that only move values
    either = old | model.graph.tensor_names if model is not None else old
    used = {n: s for n, s in cache.scales.items() if n in network.tensors or n in either}
    known = {n: used[n] for n in floats if used.get(n, 0.0) > 0}
    without = frozenset(n for n, scale in used.items() if not scale)
    # a Q/DQ model, unlike a file, may give no scales at all: its weights alone are quantised
    if (cache.scales or name) and not any(used.values()):
        raise _foreign_cache(cache, floats, name)
    fused = _marked_as_fused(network, known)
    for tensor in fused:
        del known[tensor]
    own = len(known)
    inferred: dict[str, str] = {}

    def add(found: Mapping[str, float], why: str) -> None:
        known.update(found)
        inferred.update(dict.fromkeys(found, why))

    add(propagate_scales(network, known, without=without), "follows")
    fresh = [n for n in floats if n not in old] if original is not None else []
    lacks = find_missing_scales(network, known, on_dla=on_dla)
    lacking = {lack.tensor for lack in lacks.lacks}.intersection(fresh)
    if lacking and model is not None and original is not None:
        gone = {n: s for n, s in used.items() if s > 0 and n not in network.tensors}
        for tensor, twins in equal_tensors(original, model, gone, lacking).items():
            known[tensor] = max(gone[twin] for twin in twins)
            inferred[tensor] = twins[0]
        add(propagate_scales(network, known, without=without), "follows")
    add(propagate_scales(network, known, bounds=frozenset(fresh), without=without), "bound")
    bare = with_same_values(network, without, known)
    found = find_missing_scales(network, known, on_dla=on_dla, without=bare)
    unknown = [n for n in cache.scales if n not in used]
    unnamed = [n for n in unknown if n.startswith(_UNNAMED)]
    listed = f"calibration cache {Path(name).name}".rstrip()
    data = f"{listed}, {own} of {len(floats)} tensors"
    scales = make_scales(
        {n: known[n] for n in floats if n in known},
        method="cache",
        data=data + (f", {len(inferred)} inferred" if inferred else ""),
        missing=tuple(lack.tensor for lack in found.lacks),
    )
    warnings = [*cache.notes]
    if len(unknown) > len(unnamed):
        shown = [n for n in unknown if n not in set(unnamed)]
        warnings.append(
            f"the calibration cache has {counted(len(shown), 'tensor')} that the network does "
            f"not have, such as {', '.join(map(repr, shown[:_SHOWN]))}; to remove one: edgekit "
            f"calibrate merge {name or 'CACHE'} --drop TENSOR -o NEW"
        )
    if fused:
        warnings.append(
            f"the cache's scale 1.0 of {counted(len(fused), 'convolution')} before an addition, "
            f"such as {fused[0]!r}, is the qdq-translator's mark for a fused kernel, not a range; "
            "there is nothing to do"
        )
    return CacheReading(
        scales=replace(scales, warnings=tuple(warnings)),
        lacks=found.lacks,
        without=bare,
        listed=tuple(n for n in cache.scales if n in without and n in bare),
        free=found.free - known.keys(),
        inferred=inferred,
        unknown=tuple(n for n in unknown if not n.startswith(_UNNAMED)),
        unnamed=tuple(unnamed),
    )


def _marked_as_fused(network: Network, known: Mapping[str, float]) -> list[str]:
    """Returns the tensors that qdq-translator's --add_unary_ew_scales_for_dla marks as fused.

    The option gives a convolution whose only reader is an addition of two tensors the scale 1.0,
    which DLA's compiler treats as no scale.
    """
    consumers = network.consumers()
    marked = []
    for layer in network.layers:
        if layer.kind != "CONVOLUTION" or known.get(layer.outputs[0]) != 1.0:
            continue
        readers = consumers.get(layer.outputs[0], ())
        if len(readers) != 1:
            continue
        (reader,) = readers
        adds = reader.kind == "ELEMENTWISE" and reader.params.get("function") == "SUM"
        if adds and len(reader.inputs) == 2:
            marked.append(layer.outputs[0])
    return marked


def _foreign_cache(cache: CalibrationCache, floats: list[str], name: str) -> DataError:
    first = next(iter(cache.scales), "none")
    return DataError(
        "the calibration cache has no tensor of this network",
        code="cache.foreign",
        where=name,
        hint=(
            f"the cache has {counted(len(cache.scales), 'tensor')}, such as {first!r}; the "
            f"network has {floats[0]!r}"
        )
        if floats
        else "the network has no float tensors",
    )
