"""Detects that a board changed after a release was tested: a JetPack upgrade brings another
TensorRT, which cannot load the engines; another ONNX Runtime may round differently. The board's
fingerprint is compared with the fingerprint in the release's health.json. After a change the
release is not loaded until a new deployment has built and tested it. The check is cheap:
ROOT/fingerprint.json caches the fingerprint while JetPack's files are unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from edgekit_device.board import inventory
from edgekit_device.board.identity import COMPARED, fingerprint, onnxruntime_version
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import read_owned, trusted_owners, write_durably
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    digest,
    document,
    dump,
    flag,
    load,
    mapping,
    member,
    nullable,
    number,
    parse_json,
    read,
    record,
    records,
    release_name,
    text,
)
from edgekit_device.protocol.manifest import MEND
from edgekit_device.store.root import App, Root
from edgekit_device.trust.bundle import Checked, read_record
from edgekit_device.versions import parse_version, same_version

_FINGERPRINT = "fingerprint.json"
_FINGERPRINT_SCHEMA = "edgekit.fingerprint/1"

# files that an upgrade changes: JetPack's release, Debian's packages, device tree, CUDA
_FILES = (
    "etc/nv_tegra_release",
    "var/lib/dpkg/status",
    "proc/device-tree/model",
    "usr/local/cuda/version.json",
    "usr/local/cuda",
)
_VERSIONS = ("tensorrt", "runtime_version")
_LIBRARIES = ("full", "dla_compiler", "cudart")

HEALTH = "health.json"
_HEALTH_SCHEMA = "edgekit.health/1"


_MS = number(0.0, 1e12)


@document(frozen=True)
class GoldenOutcome:
    """The outcome of the golden cases.

    Attributes:
        cases: Number of golden cases that were run.
    """

    cases: int = member(fields.count)
    bit_equal: bool = member(flag)


@document(frozen=True)
class CollapsedChannels:
    """Channels of an output whose values no longer resemble the reference.

    Attributes:
        channels: First and last channel of each span.
        cosine: Cosine similarity, -1 to 1.
    """

    output: str = member(text())
    channels: Tuple[Tuple[int, ...], ...] = member(array(array(fields.count)))
    cosine: float = member(fields.cosine)


@document(frozen=True)
class MeasuredAccuracy:
    """The accuracy on the bundle's samples, of the worst lane.

    Figures that default to None are missing in records of earlier versions.

    Attributes:
        metric: The metric that is judged.
        value: Its value; None for "snr_db" if no output has an error, or none varies.
        least: Its minimum; None for no limit.
        samples: Number of samples.
        source: Source of the samples.
        synthetic: True if the samples are generated.
        cosine: Mean cosine similarity over the samples, -1 to 1.
        snr_db: Signal-to-noise ratio in dB.
        cosine_min: Cosine similarity of the worst sample.
        exact: True if no output has an error.
        max_abs: Largest absolute difference, in the output's unit.
        top1_agreement: Share of samples with the reference's largest value, 0 to 1.
        top1_accuracy: Share of labelled samples that are classified correctly, 0 to 1.
        boxes: F1 score of a detector's objects against FP32's, if that is the metric.
        collapsed: Groups of an output's channels that no longer resemble the reference.
    """

    metric: str = member(text())
    value: Optional[float] = member(nullable(fields.difference))
    least: Optional[float] = member(nullable(fields.difference), key="min")
    samples: int = member(fields.count)
    source: str = member(text())
    synthetic: bool = member(flag)
    cosine: float = member(fields.cosine)
    snr_db: Optional[float] = member(nullable(fields.difference))
    cosine_min: Optional[float] = member(fields.cosine, absent=None)
    exact: Optional[bool] = member(flag, absent=None)
    max_abs: Optional[float] = member(fields.figure, absent=None)
    top1_agreement: Optional[float] = member(fields.share, absent=None)
    top1_accuracy: Optional[float] = member(fields.share, absent=None)
    boxes: Optional[float] = member(fields.share, absent=None)
    collapsed: Optional[Tuple[CollapsedChannels, ...]] = member(
        records(CollapsedChannels), absent=None
    )


@document(frozen=True)
class FrameTimes:
    """Times of whole frames, in milliseconds.

    Attributes:
        p50: Median.
        p99: 99th percentile.
        mean: Mean.
        frames: Number of measured frames.
        rounds: Number of measurements; the best counts.
    """

    p50: float = member(_MS)
    p99: float = member(_MS)
    mean: float = member(_MS)
    frames: int = member(fields.count)
    rounds: Optional[int] = member(fields.count, absent=None)


@document(frozen=True)
class Health:
    """health.json, ``edgekit.health/1``: a release's test, and the board it ran on
    (docs/health.md).
    """

    release: str = member(release_name)
    digest: str = member(digest)
    at: str = member(text())
    backend: str = member(text())
    clock: str = member(text())
    fingerprint: Mapping[str, str] = member(mapping(text()))
    golden: GoldenOutcome = member(record(GoldenOutcome))
    accuracy: Optional[MeasuredAccuracy] = member(nullable(record(MeasuredAccuracy)))
    latency_ms: FrameTimes = member(record(FrameTimes))
    notes: Tuple[str, ...] = member(array(text()))
    schema: str = member(choice(_HEALTH_SCHEMA), default=_HEALTH_SCHEMA)


@document(frozen=True)
class FingerprintChange:
    """A part of the fingerprint that changed since a release was tested."""

    what: str = member(text())
    before: str = member(text(), key="from")
    now: str = member(text(), key="to")


@document(frozen=True)
class Changed:
    """The entry of ``status`` for a release whose board changed."""

    release: str = member(release_name)
    changes: Tuple[FingerprintChange, ...] = member(records(FingerprintChange))


@document(frozen=True)
class _KnownFingerprint:
    """fingerprint.json: the fingerprint, valid while ``key`` is unchanged."""

    key: str = member(digest)
    fingerprint: Mapping[str, str] = member(mapping(text()))
    schema: str = member(choice(_FINGERPRINT_SCHEMA), default=_FINGERPRINT_SCHEMA)


def refuse_changed(checked: Checked) -> None:
    """Refuses a release if the board changed since the release was tested.

    Args:
        checked: A checked bundle. A bundle that was never tested here passes: its backend refuses
            engines that it cannot run.

    Raises:
        DeviceError: "board.changed", with the old and the new value, and the command to run.
    """
    release, root = checked.files.release, checked.files.root
    health = None if release is None else read_health(release)
    if health is None or root is None:
        return
    backend = checked.manifest.backend
    now = fingerprint_now(root.folder, backend, loads=True)
    found = compare_fingerprints(backend, health.fingerprint, now)
    if found:
        raise DeviceError(
            "this board has changed since the release was tested: "
            + "; ".join("{0.what} {0.before} -> {0.now}".format(change) for change in found),
            code="board.changed",
            where=checked.files.where,
            hint="build and test for the board as it is now: edgekit deploy CONFIG",
        )


def compare_fingerprints(
    backend: str, tested: Mapping[str, str], now: Mapping[str, str]
) -> List[FingerprintChange]:
    """Returns the differences of two fingerprints, without values that either side lacks."""
    found = []
    for name in COMPARED.get(backend, ()):
        before, here = tested.get(name) or "", now.get(name) or ""
        if not before or not here or before == here:
            continue
        # a package's version has more parts (10.3.0.30) than the module's (10.3.0)
        if name not in _VERSIONS or not same_version(parse_version(before), parse_version(here)):
            found.append(FingerprintChange(name, before[:80], here[:80]))
    return found


def find_change(root: Root, app: App) -> Optional[Changed]:
    """Returns how the board changed since an app's current release was tested; None if it did not.

    Loads neither the release nor a runtime.
    """
    current = app.link("current")
    health = None if current is None else read_health(app.releases_folder / current)
    if current is None or health is None:
        return None
    now = fingerprint_now(root.folder, health.backend)
    found = compare_fingerprints(health.backend, health.fingerprint, now)
    return Changed(current, tuple(found)) if found else None


def fingerprint_now(folder: Path, backend: str, *, loads: bool = False) -> Dict[str, str]:
    """Returns the board's fingerprint for releases of ``backend``; unknown values are "".

    fingerprint.json gives the fingerprint without a child process. Its key covers the boot of
    the running system, the files of JetPack, TensorRT and CUDA, and the TensorRT of this
    process. A file of another account, or with another key, is not trusted: the board is
    examined again.

    Args:
        folder: ROOT.
        backend: The manifest's backend.
        loads: True if the caller loads the runtime anyway: then the loaded version counts.
    """
    if backend == "reference":
        return {
            "backend": backend,
            "runtime": "onnxruntime",
            "runtime_version": _onnxruntime_version(loads),
            "machine": platform.machine(),
        }
    version = _tensorrt_version(loads)
    key = _fingerprint_key(folder, version)
    known = _read_known(folder, key)
    if known is not None:
        return known

    found = fingerprint(folder)
    if version and not same_version(parse_version(version), parse_version(found["tensorrt"])):
        found["tensorrt"] = version  # the loaded library counts, not the package list
    # if it cannot be cached, the board is examined again next time
    with contextlib.suppress(OSError, DeviceError):
        # a question creates no installation
        if folder.is_dir():
            write_durably(folder / _FINGERPRINT, dump(_KnownFingerprint(key, found)))
            (folder / _FINGERPRINT).chmod(0o600)
    return found


def _onnxruntime_version(loads: bool) -> str:
    if loads:
        try:
            importlib.import_module("onnxruntime")
        except ImportError:
            return ""
    module = sys.modules.get("onnxruntime")
    if module is not None:
        return str(getattr(module, "__version__", ""))
    version = onnxruntime_version() or ""
    return version if version[:1].isdigit() else ""


def _tensorrt_version(loads: bool) -> str:
    if loads:
        from edgekit_device.tensorrt.bindings import find_module

        module = find_module("full")
    else:
        # not imported for this: status and offer must answer quickly
        module = sys.modules.get("tensorrt")
    return str(getattr(module, "__version__", ""))


def _fingerprint_key(folder: Path, version: str) -> str:
    system = Path("/")
    paths = [system / name for name in _FILES]
    libraries = inventory.libraries(system)
    paths += [Path(libraries[kind]["path"]) for kind in _LIBRARIES if kind in libraries]
    facts: List[Any] = [inventory.boot_id(system), version, sys.executable]
    facts += [_file_stamp(path) for path in (*paths, folder / "board.json")]
    return hashlib.sha256(json.dumps(facts).encode("utf-8")).hexdigest()


def _file_stamp(path: Path) -> Optional[List[Any]]:
    try:
        facts = path.stat()
    except OSError:
        return None
    if str(path).startswith("/proc/"):
        return [str(path)]  # its time stamp is the time of the first read
    # the real path: libraries and /usr/local/cuda are links that an upgrade points elsewhere
    return [str(path), os.path.realpath(str(path)), facts.st_mtime_ns, facts.st_size, facts.st_ino]


def _read_known(folder: Path, key: str) -> Optional[Dict[str, str]]:
    try:
        data = read_owned(folder / _FINGERPRINT, trusted_owners(folder))
        found = read(_KnownFingerprint, parse_json(bytes(data or b""), _FINGERPRINT))
    except (OSError, DeviceError):
        return None
    return dict(found.fingerprint) if found.key == key else None


def read_health(folder: Path) -> Optional[Health]:
    """Returns the release's record; None if the release was never tested here, or it is damaged.

    Raises:
        DeviceError: "state.version"; a new deployment rewrites the record.
    """
    return load(Health, folder / HEALTH, schemas=(_HEALTH_SCHEMA,), mend=MEND)


def is_readable(folder: Path) -> bool:
    """Returns True if this version can read the release's record."""
    try:
        read_record(folder)
        read_health(folder)
    except DeviceError:
        return False
    return True


def write_health(folder: Path, health: Health) -> None:
    """Writes the record atomically.

    Raises:
        DeviceError: "board.disk-full" and the like.
    """
    with map_os_errors(str(folder)):
        write_durably(folder / HEALTH, dump(health))
