"""Is the board still what a release was tested on? A JetPack upgrade brings another TensorRT,
whose engines are others; an upgrade of ONNX Runtime may round elsewhere. The board now is compared
with the fingerprint in the release's health.json; a release that was tested on something else is
not loaded until it is deployed again, which builds and tests for the board as it is. The check is
cheap: ROOT/fingerprint.json holds the answer while the files of JetPack stay as they are.
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
from edgekit_device.files import owners_of, read_owned, write_durably
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

# JetPack's releases, Debian's packages, device trees, CUDA: what an upgrade changes
_FILES = (
    "etc/nv_tegra_release", "var/lib/dpkg/status", "proc/device-tree/model",
    "usr/local/cuda/version.json", "usr/local/cuda",
)  # fmt: skip
_VERSIONS = ("tensorrt", "runtime_version")
_LIBRARIES = ("full", "dla_compiler", "cudart")

HEALTH = "health.json"
_HEALTH_SCHEMA = "edgekit.health/1"


_MS = number(0.0, 1e12)


@document(frozen=True)
class GoldenOutcome:
    """The golden cases: how many were run, and whether all outputs had the expected bits.

    Attributes:
        cases: How many golden cases were run.
    """

    cases: int = member(fields.count)
    bit_equal: bool = member(flag)


@document(frozen=True)
class CollapsedChannels:
    """Channels (first and last of each span) of an output that are not what they were.

    Attributes:
        channels: First and last channel of each span.
        cosine: Cosine similarity, -1 to 1.
    """

    output: str = member(text())
    channels: Tuple[Tuple[int, ...], ...] = member(array(array(fields.count)))
    cosine: float = member(fields.cosine)


@document(frozen=True)
class MeasuredAccuracy:
    """The accuracy on the bundle's samples: the worst lane's figures.

    Figures that default to None are missing in records of earlier versions.

    Attributes:
        metric: Which of the figures is judged.
        value: Its value; None for "snr_db" where nothing has an error or nothing varies.
        least: What it must reach, None for no limit.
        samples: How many.
        source: Where they are from.
        synthetic: Whether they are made up.
        cosine: Cosine similarity, the mean over the samples, -1 to 1.
        snr_db: Decibels.
        cosine_min: The worst sample's cosine similarity.
        exact: Whether no output has an error.
        max_abs: Largest absolute difference, in the output's unit.
        top1_agreement: Part of the samples whose largest value is at the same place, 0 to 1.
        top1_accuracy: Of samples with labels.
        boxes: Of a detector whose metric it is: the F1 score of its objects against FP32's.
        collapsed: Groups of an output's channels that are not what they were.
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
    """Milliseconds of whole frames; ``rounds``: how often they were measured.

    Attributes:
        p50: Median, in milliseconds.
        p99: 99th percentile, in milliseconds.
        mean: Milliseconds.
        frames: How many frames were measured.
        rounds: How often they were measured.
    """

    p50: float = member(_MS)
    p99: float = member(_MS)
    mean: float = member(_MS)
    frames: int = member(fields.count)
    rounds: Optional[int] = member(fields.count, absent=None)


@document(frozen=True)
class Health:
    """health.json, ``edgekit.health/1``: what a release was tested on, and how that went
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
    """What is no longer as it was when a release was tested."""

    what: str = member(text())
    before: str = member(text(), key="from")
    now: str = member(text(), key="to")


@document(frozen=True)
class Changed:
    """What ``status`` says of a release that the board is no longer right for."""

    release: str = member(release_name)
    changes: Tuple[FingerprintChange, ...] = member(records(FingerprintChange))


@document(frozen=True)
class _KnownFingerprint:
    """fingerprint.json: the fingerprint as long as ``key`` stays the same."""

    key: str = member(digest)
    fingerprint: Mapping[str, str] = member(mapping(text()))
    schema: str = member(choice(_FINGERPRINT_SCHEMA), default=_FINGERPRINT_SCHEMA)


def need_unchanged(checked: Checked) -> None:
    """Refuses a release whose board is no longer what it was tested on.

    Args:
        checked: A checked bundle; one that was never tested here is not refused, since the backend
            itself says what it cannot run.

    Raises:
        DeviceError: "board.changed", with what changed, from what to what, and the command that
            mends it.
    """
    release, root = checked.files.release, checked.files.root
    health = None if release is None else read_health(release)
    if health is None or root is None:
        return
    backend = checked.manifest.backend
    now = fingerprint_now(root.folder, backend, loads=True)
    found = changes(backend, health.fingerprint, now)
    if found:
        raise DeviceError(
            "this board has changed since the release was tested: "
            + "; ".join("{0.what} {0.before} -> {0.now}".format(one) for one in found),
            code="board.changed",
            where=checked.files.where,
            hint="build and test for the board as it is now: edgekit deploy CONFIG",
        )


def changes(
    backend: str, tested: Mapping[str, str], now: Mapping[str, str]
) -> List[FingerprintChange]:
    """What differs; what either side does not know is left out."""
    found = []
    for name in COMPARED.get(backend, ()):
        before, here = tested.get(name) or "", now.get(name) or ""
        if not before or not here or before == here:
            continue
        if name not in _VERSIONS or not same_version(parse_version(before), parse_version(here)):
            found.append(FingerprintChange(name, before[:80], here[:80]))
    return found


def changed_of(root: Root, app: App) -> Optional[Changed]:
    """What ``status`` says of an app's current release; None where the board is as it was.

    Loads neither the release nor a runtime.
    """
    current = app.link("current")
    health = None if current is None else read_health(app.releases_folder / current)
    if current is None or health is None:
        return None
    now = fingerprint_now(root.folder, health.backend)
    found = changes(health.backend, health.fingerprint, now)
    return Changed(current, tuple(found)) if found else None


# fingerprint.json says what this board is without a child process while its files stay as they are:
# the key is of the running system (its boot), of the files that JetPack, TensorRT and CUDA come as,
# and of the TensorRT that this process has. A file that was changed since, or by another account,
# is not trusted; then the board is examined again.


def fingerprint_now(folder: Path, backend: str, *, loads: bool = False) -> Dict[str, str]:
    """What a release of ``backend`` depends on here; "" where something is not known.

    Args:
        folder: ROOT.
        backend: The manifest's.
        loads: Whether the caller loads the runtime anyway: then its own version counts.
    """
    if backend == "reference":
        return {
            "backend": backend,
            "runtime": "onnxruntime",
            "runtime_version": _onnxruntime(loads),
            "machine": platform.machine(),
        }
    version = _tensorrt(loads)
    key = _key(folder, version)
    known = _read_known(folder, key)
    if known is not None:
        return known

    found = fingerprint(folder)
    if version and not same_version(parse_version(version), parse_version(found["tensorrt"])):
        found["tensorrt"] = version  # what runs counts, not what a package list says
    # if it cannot be cached, the board is examined again next time
    with contextlib.suppress(OSError, DeviceError):
        if folder.is_dir():
            write_durably(folder / _FINGERPRINT, dump(_KnownFingerprint(key, found)))
            (folder / _FINGERPRINT).chmod(0o600)
    return found


def _onnxruntime(loads: bool) -> str:
    if loads:
        try:
            importlib.import_module("onnxruntime")
        except ImportError:
            return ""
    module = sys.modules.get("onnxruntime")
    if module is not None:
        return str(getattr(module, "__version__", ""))
    said = onnxruntime_version() or ""
    return said if said[:1].isdigit() else ""


def _tensorrt(loads: bool) -> str:
    if loads:
        from edgekit_device.tensorrt.bindings import find

        module = find("full")
    else:
        module = sys.modules.get("tensorrt")
    return str(getattr(module, "__version__", ""))


def _key(folder: Path, version: str) -> str:
    system = Path("/")
    paths = [system / name for name in _FILES]
    there = inventory.libraries(system)
    paths += [Path(there[kind]["path"]) for kind in _LIBRARIES if kind in there]
    facts: List[Any] = [inventory.boot_id(system), version, sys.executable]
    facts += [_stamp(path) for path in (*paths, folder / "board.json")]
    return hashlib.sha256(json.dumps(facts).encode("utf-8")).hexdigest()


def _stamp(path: Path) -> Optional[List[Any]]:
    try:
        facts = path.stat()
    except OSError:
        return None
    if str(path).startswith("/proc/"):
        return [str(path)]  # its time is when it was first read
    return [str(path), os.path.realpath(str(path)), facts.st_mtime_ns, facts.st_size, facts.st_ino]


def _read_known(folder: Path, key: str) -> Optional[Dict[str, str]]:
    try:
        data = read_owned(folder / _FINGERPRINT, owners_of(folder))
        found = read(_KnownFingerprint, parse_json(bytes(data or b""), _FINGERPRINT))
    except (OSError, DeviceError):
        return None
    return dict(found.fingerprint) if found.key == key else None


def read_health(folder: Path) -> Optional[Health]:
    """The release's record; None where it was never examined here, or the record is damaged.

    Raises:
        DeviceError: "state.version"; a deployment writes it anew.
    """
    return load(Health, folder / HEALTH, schemas=(_HEALTH_SCHEMA,), mend=MEND)


def is_read(folder: Path) -> bool:
    """Whether this version reads what the board noted of a release when it was deployed."""
    try:
        read_record(folder)
        read_health(folder)
    except DeviceError:
        return False
    return True


def write_health(folder: Path, health: Health) -> None:
    """Keeps the record; readers see the old one or the new one.

    Raises:
        DeviceError: "board.disk-full" and the like.
    """
    with map_os_errors(str(folder)):
        write_durably(folder / HEALTH, dump(health))
