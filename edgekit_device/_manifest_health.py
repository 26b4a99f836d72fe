"""The manifest's "requires", "samples" and "issued": what a release is held against on a board."""

from __future__ import annotations

import calendar
import re
import time
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from . import _checks as check
from ._deviation import classes_of
from ._types import BlobEntry, Lane, TensorEntry, nbytes
from ._types_health import Issued, Requires, SampleCase, Samples

__all__ = [
    "LABELLED",
    "METRICS",
    "needs_of",
    "parse_issued",
    "parse_requires",
    "parse_samples",
]

#: What accuracy is measured in; as the configuration's ``accuracy.metric``.
METRICS = ("cosine", "snr_db", "top1_agreement")
#: The metric of samples with labels: the share of inputs whose class the first output names.
LABELLED = "top1_accuracy"

_REQUIRES = (
    "backend", "loader", "runtime", "boards", "portable", "dla_cores", "cudla", "disk_bytes",
    "memory_bytes",
)  # fmt: skip
_BOARD = ("module", "l4t", "tensorrt")
_VERSION = re.compile(r"\d{1,9}(\.\d{1,9}){0,4}\Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")
_MAX_BYTES = 1 << 50
_MOST_COUNTER = (1 << 63) - 1
_MOST_CORES = 16
_MOST_SAMPLES = 4096


def needs_of(document: Mapping[str, Any]) -> Optional[Requires]:
    """Reads "requires" of a manifest that is checked already; None where it does not say."""
    value = document.get("requires")
    return None if value is None else _requires(value, str(document.get("backend")))


def parse_requires(value: object, lanes: Tuple[Lane, ...], backend: str) -> Optional[Requires]:
    """Reads what a bundle needs of a board; None where it does not say.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        return None
    found = _requires(value, backend)
    if set(found.dla_cores) - {segment.core for lane in lanes for segment in lane.segments}:
        check.fail("requires.dla_cores", "a core that no segment uses")
    return found


def _requires(value: object, backend: str) -> Requires:
    entry = check.record(value, "requires", _REQUIRES)
    if entry["backend"] != backend:
        check.fail("requires.backend", "the manifest's is {!r}".format(backend[:80]))
    runtime: Optional[Tuple[str, str, str]] = None
    if entry["runtime"] is not None:
        told = check.record(entry["runtime"], "requires.runtime", ("name", "from", "below"))
        name = check.text(told["name"], "requires.runtime.name")
        oldest, newest = (
            _version(told[which], "requires.runtime." + which) for which in ("from", "below")
        )
        runtime = (name, oldest, newest)
    boards = []
    for number, item in enumerate(check.array(entry["boards"], "requires.boards")):
        at = "requires.boards[{}]".format(number)
        facts = check.record(item, at, _BOARD)
        boards.append({name: check.text(facts[name], at + "." + name) for name in _BOARD})
    cores = tuple(
        check.integer(core, "requires.dla_cores", 0, _MOST_CORES - 1)
        for core in check.array(entry["dla_cores"], "requires.dla_cores")
    )
    for name in ("portable", "cudla"):
        if not isinstance(entry[name], bool):
            check.fail("requires." + name, "expected true or false")
    return Requires(
        backend=backend,
        loader=check.text(entry["loader"], "requires.loader"),
        runtime=runtime,
        boards=tuple(boards),
        portable=entry["portable"],
        dla_cores=cores,
        cudla=entry["cudla"],
        disk_bytes=check.integer(entry["disk_bytes"], "requires.disk_bytes", 0, _MAX_BYTES),
        memory_bytes=check.integer(entry["memory_bytes"], "requires.memory_bytes", 0, _MAX_BYTES),
    )


def parse_samples(
    value: object,
    inputs: Sequence[TensorEntry],
    outputs: Sequence[TensorEntry],
    blobs: Mapping[str, BlobEntry],
) -> Optional[Samples]:
    """Reads the inputs that travel with the bundle, with what FP32 made of them.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        return None
    entry = check.record(value, "samples", ("metric", "source", "synthetic", "min", "cases"))
    metrics = (*METRICS, LABELLED)
    if entry["metric"] not in metrics:
        check.fail("samples.metric", "expected one of {}".format(", ".join(metrics)))
    labelled = entry["metric"] == LABELLED
    if not isinstance(entry["synthetic"], bool):
        check.fail("samples.synthetic", "expected true or false")
    least: Optional[float] = None
    if entry["min"] is not None:
        least = check.number(entry["min"], "samples.min", -1e9, 1e9)
    cases = check.array(entry["cases"], "samples.cases", 1)
    if len(cases) > _MOST_SAMPLES:
        check.fail("samples.cases", "{} are too many".format(len(cases)))
    found = []
    for number, item in enumerate(cases):
        at = "samples.cases[{}]".format(number)
        case = check.record(item, at, ("inputs", "outputs") + ("labels",) * labelled)
        found.append(
            SampleCase(
                _arrays(case["inputs"], at + ".inputs", inputs, blobs),
                _arrays(case["outputs"], at + ".outputs", outputs, blobs),
                _labels(case["labels"], at + ".labels", outputs) if labelled else None,
            )
        )
    source = check.text(entry["source"], "samples.source")
    return Samples(entry["metric"], source, entry["synthetic"], least, tuple(found))


def parse_issued(value: object) -> Optional[Issued]:
    """Reads when, with which counter and until when a bundle was issued.

    Raises:
        DeviceError: "manifest.invalid".
    """
    if value is None:
        return None
    given = tuple(
        name for name in ("counter", "valid_until") if isinstance(value, dict) and name in value
    )
    entry = check.record(value, "issued", ("at", *given))
    counter, until = entry.get("counter"), entry.get("valid_until")
    if "counter" in given:
        counter = check.integer(counter, "issued.counter", 1, _MOST_COUNTER)
    if "valid_until" in given:
        until = _time(until, "issued.valid_until")
    return Issued(_time(entry["at"], "issued.at"), counter, until)


def _time(value: object, where: str) -> int:
    text = check.text(value, where)
    try:
        found = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        found = -1
    if found < 0 or not _TIME.match(text):
        check.fail(where, "expected a time as 2027-01-31T12:00:00Z")
    return found


def _arrays(
    value: object, where: str, tensors: Sequence[TensorEntry], blobs: Mapping[str, BlobEntry]
) -> Dict[str, str]:
    entry = check.record(value, where, [tensor.name for tensor in tensors])
    for tensor in tensors:
        spot = "{}.{}".format(where, tensor.name[:80])
        blob = blobs.get(check.digest(entry[tensor.name], spot))
        if blob is None or blob.bytes != nbytes(tensor.dtype, tensor.shape):
            check.fail(spot, "no blob of this digest and size")
    return entry


def _labels(value: object, where: str, outputs: Sequence[TensorEntry]) -> Tuple[int, ...]:
    found = classes_of(outputs[0].shape)
    if found is None:
        check.fail(where, "the first output is not one class for each input")
    rows, classes = found
    labels = check.array(value, where)
    if len(labels) != rows:
        check.fail(where, "expected {} numbers".format(rows))
    return tuple(check.integer(label, where, 0, classes - 1) for label in labels)


def _version(value: object, where: str) -> str:
    text = check.text(value, where)
    if text and not _VERSION.match(text):
        check.fail(where, "{!r} is no version".format(text[:80]))
    return text
