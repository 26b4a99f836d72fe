"""The TensorRT backend: plans through the full, lean or dispatch runtime, loadables through cuDLA.

TensorRT gets an engine's bytes only after checks of the bundle's signature, the engine's digest,
the board's kind and the plan's header. Full plans that a refit stored on this board have no
signature: ``tensorrt.refit`` checks their owner.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

from edgekit_device.board.identity import board_facts
from edgekit_device.cuda.cudla import open_loadable
from edgekit_device.errors import DeviceError, listed
from edgekit_device.protocol.manifest import CPU, EngineEntry, Manifest, SegmentEntry
from edgekit_device.store.root import default_root
from edgekit_device.tensorrt.engine import TensorRTEngine, check_io
from edgekit_device.tensorrt.memory import MemoryPlan
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.tensorrt.plugins import bundle_plugins
from edgekit_device.tensorrt.refit import full_plan, read_full_plan, refit, write_full_plan
from edgekit_device.tensorrt.runtimes import LoadedPlan, Runtimes, check_board
from edgekit_device.trust.bundle import Checked, read_checked, weight_array
from edgekit_device.versions import Version, parse_version, same_version, show

if TYPE_CHECKING:
    import numpy as np

_TAKES_OTHERS = ("any", "individual")
_FIRST_HEADER: Version = (8, 6)


def plan_memory(manifest: Manifest, device_memory: Any) -> MemoryPlan:
    """Returns the memory plan of a bundle's engines.

    Args:
        manifest: The bundle's manifest, with all its variants.
        device_memory: A tensor on the GPU that contexts use while they run; None: TensorRT's own
            memory, or memory that engines of one device share.

    Raises:
        DeviceError: "memory.invalid".
    """
    return MemoryPlan.of(manifest, device_memory)


def open_engines(
    checked: Checked,
    threads: int = 0,
    profile: Optional[Path] = None,
    segments: Optional[Sequence[SegmentEntry]] = None,
    *,
    memory: Optional[MemoryPlan] = None,
) -> Dict[Tuple[str, str], Any]:
    """Opens TensorRT engines, refitted with the bundle's weights if they take any.

    An engine whose bytes serve several devices (two DLA cores) is opened on each.

    Args:
        checked: A bundle whose signature and manifest were checked.
        threads: Threads of each runtime; 0 leaves TensorRT's default.
        profile: If not None, layers' times are recorded (``node_times``).
        segments: The segments whose engines are opened; None for all.
        memory: The result of ``plan_memory`` for the whole manifest; by default for this manifest.

    Returns:
        Engines by digest and device.

    Raises:
        DeviceError: "engine.*", "plugin.*", "refit.*", "blob.*", "board.no-gpu",
            "board.no-tensorrt", "tensorrt.*", "memory.*" or "cuda.*".
    """
    manifest = checked.manifest
    root = default_root() if checked.files.root is None else checked.files.root.folder
    runtimes = Runtimes(root, threads, bundle_plugins(checked))
    _check_board(checked, root, runtimes)
    engines: Dict[Tuple[str, str], Any] = {}
    used: Dict[str, Optional[List[str]]] = {}
    values: Dict[str, np.ndarray] = {}
    whole = [segment for segment in manifest.segments() if segment.device != CPU]
    every = whole if segments is None else segments
    memory = MemoryPlan.of(manifest) if memory is None else memory
    # a dict by key: an engine that several segments or lanes use is opened once
    for key, segment in {(segment.engine, segment.device): segment for segment in every}.items():
        digest, entry = segment.engine, manifest.engines[segment.engine]
        if entry.kind == "loadable":
            data = bytes(read_checked(checked, digest))
            engines[key] = open_loadable(data, segment.core or 0, entry)
            continue
        profiled = profile is not None
        engines[key], names = _open_plan(checked, segment, runtimes, profiled, values, memory)
        used.setdefault(digest, names)
    # only now is the largest need of all engines known
    memory.open()
    taken = {name for names in used.values() for name in names or ()}
    # an engine that was refitted before takes no weights now, so its names are unknown; and engines
    # of other variants take other weights
    names_are_known = None not in used.values() and {segment.engine for segment in whole} <= set(
        digest for digest, _ in engines
    )
    unused = sorted(set(manifest.weights) - taken) if names_are_known else []
    if unused:
        raise DeviceError(
            "no engine uses these weights: {}".format(listed([repr(name[:80]) for name in unused])),
            code="refit.mismatch",
            where=checked.files.where,
            hint="build the bundle again",
        )
    return engines


def _check_board(checked: Checked, root: Path, runtimes: Runtimes) -> None:
    entries = checked.manifest.engines.values()
    facts = board_facts(root)
    # boards of the same kit have different modules: the number, if known, distinguishes these
    names = [name for name in (facts["module"], facts["board_id"]) if name]
    full = runtimes.installed().get("full")
    check_board(
        checked.manifest.fingerprint,
        {
            "module": " ".join(names),
            "l4t": facts["l4t"],
            "tensorrt": None if full is None else show(full),
        },
        portable=all(entry.portable for entry in entries),
        where=checked.files.where,
    )


def _open_plan(
    checked: Checked,
    segment: SegmentEntry,
    runtimes: Runtimes,
    profile: bool,
    values: Dict[str, np.ndarray],
    memory: MemoryPlan,
) -> Tuple[TensorRTEngine, Optional[List[str]]]:
    """Opens an engine; returns it with the weights that it was refitted with, None if that was done
    before.

    ``values`` are weights of earlier refits; the engine's own weights are added.
    """
    digest, entry = segment.engine, checked.manifest.engines[segment.engine]
    data = read_checked(checked, digest)
    version = _version(data, entry, digest)
    names: Optional[List[str]] = []
    loaded: Optional[LoadedPlan] = None
    # an engine with weights is refitted with the bundle's, too: these may differ
    takes = entry.stripped or (entry.refit in _TAKES_OTHERS and bool(checked.manifest.weights))
    for choice in runtimes.choices(version, entry, checked.signer is not None, digest):
        # a stored plan has no embedded runtime: useless if only that could run it
        release = None if choice.carried or not takes else checked.files.release
        full = None
        if release is not None:
            full = read_full_plan(release, digest, runtimes.record_name(choice.flavour))
        if full is not None:
            # a stored plan has no signature, so none of its code may run except the bundle's own
            # plugins
            bare = replace(choice, host_code=choice.host_code and entry.plugins_embedded)
            loaded = runtimes.load(full, bare, segment.core, digest, spare=True)
            if loaded is not None:
                names = None
                break
        # the signed plan, also if the stored plan is damaged or refused
        loaded = runtimes.load(data, choice, segment.core, digest)
        if loaded is None:
            continue
        if takes:
            names = _refit(checked, digest, entry, loaded, values)
        if release is not None:
            _write_full_plan(release, digest, entry, loaded, runtimes, choice.flavour)
        break
    if loaded is None:
        raise runtimes.failure()
    # before a context exists: wrong types or shapes would make the engine write past buffers
    check_io(loaded.engine, [*entry.inputs, *entry.outputs], digest)
    engine_memory = memory.engine(loaded, runtimes.cuda(), segment.device)
    engine = TensorRTEngine(
        loaded,
        runtimes.cuda(),
        entry.inputs,
        entry.outputs,
        profile=profile,
        notes=([choice.note] if choice.note else []) + memory.notes,
        memory=engine_memory,
    )
    return engine, names


def _refit(
    checked: Checked,
    digest: str,
    entry: EngineEntry,
    loaded: LoadedPlan,
    values: Dict[str, np.ndarray],
) -> List[str]:
    """Refits an engine; ``values`` keeps the weights, which are read and hashed only once."""
    weights = checked.manifest.weights
    if not values:
        values.update({name: weight_array(checked, weight) for name, weight in weights.items()})
    # an engine's own names of weights, if the parser counted them
    by_engine_name = {name: values[key] for name, key in entry.weights.items() if key in values}
    names = refit(loaded.trt, loaded.engine, {**values, **by_engine_name}, where=digest)
    return [entry.weights.get(name, name) for name in names]


def _write_full_plan(
    release: Path,
    digest: str,
    entry: EngineEntry,
    loaded: LoadedPlan,
    runtimes: Runtimes,
    flavour: str,
) -> None:
    """Stores the full plan; if that fails, the engine still runs."""
    if entry.lean_embedded and not hasattr(loaded.trt, "SerializationFlag"):
        return  # before 10.0 the plan would embed its runtime, which no signature would cover
    try:
        compatible = entry.version_compatible
        plan = full_plan(loaded.trt, loaded.engine, compatible=compatible, where=digest)
        write_full_plan(release, digest, runtimes.record_name(flavour), plan)
    except DeviceError as error:
        runtimes.notes.append(
            "the refitted plan cannot be saved, so every load refits it again ({})".format(
                error.message
            )
        )


def _version(data: Union[bytes, memoryview], entry: EngineEntry, where: str) -> Version:
    recorded = parse_version(entry.tensorrt)
    try:
        version = read_header(data, where)
    except DeviceError as error:
        # the header is known since 8.6; before that, only the manifest has the version
        if error.code == "engine.serialization" and recorded[:2] < _FIRST_HEADER:
            return recorded
        raise
    # both are signed or recorded at the build: if they differ, the plan is not the one that was
    # built
    if not same_version(version, recorded):
        raise DeviceError(
            "the plan is from TensorRT {}, but its manifest says {}".format(
                show(version), show(recorded)
            ),
            code="engine.invalid",
            where=where,
            hint="build the bundle again",
        )
    return version
