"""The reference backend: each segment is an ONNX Runtime session on the CPU. Also runs CPU segments
of other backends' bundles: modules of a PyTorch network that were not compiled.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from edgekit_device.arrays.onnx_file import EngineFacts, read_engine
from edgekit_device.errors import DeviceError, listed
from edgekit_device.protocol.manifest import (
    CPU,
    DTYPES,
    PYTHON,
    Manifest,
    SegmentEntry,
    WeightEntry,
)
from edgekit_device.runtime.python_part import open_python
from edgekit_device.trust.bundle import BITS, Checked, read_checked, weight_array

if TYPE_CHECKING:
    import numpy as np


_SEVERITY_ERROR = 3

# numbers in TensorProto.DataType of types that NumPy lacks
_ONNX_TYPES = {"bfloat16": 16}

# NumPy's names of ONNX Runtime's
_NUMPY = {
    "tensor({})".format({"float32": "float", "float64": "double"}.get(name, name)): name
    for name in DTYPES
}

# optimisation levels of the builder (fingerprint "optimisation"), by ONNX Runtime's names
_OPTIMISATION = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}

# ONNX Runtime's faulty graph optimisations, as in edgekit.network: one makes pools with pads as
# large as their window, one drops a Clip before small scales
_WRONG_FUSIONS = ("Pad_Fusion", "ClipQuantRewrite")


class ReferenceEngine:
    """A segment's session; keeps the weights' memory alive."""

    def __init__(self, session: Any, weights: List[np.ndarray]) -> None:
        self._session = session
        self._weights = weights
        self._types = {each.name: _NUMPY.get(each.type) for each in session.get_inputs()}

    def run(self, segment: SegmentEntry, feeds: Dict[str, Any]) -> Dict[str, np.ndarray]:
        """Runs the segment: inputs by name to outputs by name."""
        names = list(segment.outputs)
        # fetches tensors that an earlier engine left on the GPU
        feeds = {
            name: value.numpy(self._types[name]) if hasattr(value, "numpy") else value
            for name, value in feeds.items()
        }
        try:
            # Python 3.8 has no zip(strict=True); the session returns a value for each name
            return dict(zip(names, self._session.run(names, feeds)))  # noqa: B905
        except Exception as error:  # ONNX Runtime has no common base class of its own
            raise DeviceError(
                "a segment failed: {}".format(_first_line(error)),
                code="engine.failed",
                where="segment {} on {}".format(segment.index, segment.device),
            ) from error

    def end_profiling(self) -> str:
        """Ends ONNX Runtime's profile and returns its file."""
        return str(self._session.end_profiling())


def weight_faults(facts: EngineFacts, weights: Dict[str, WeightEntry]) -> List[str]:
    """Returns the differences between an engine's stripped weights and the manifest's, by name."""
    found = []
    for wanted in facts.weights:
        given = weights.get(wanted.name)
        if given is None:
            found.append("{!r} is not among the bundle's weights".format(wanted.name[:80]))
        elif (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
            found.append(
                "{!r} is {} {}, but the engine needs {} {}".format(
                    wanted.name[:80],
                    given.dtype,
                    list(given.shape),
                    wanted.dtype,
                    list(wanted.shape),
                )
            )
    return found


def plan_memory(manifest: Manifest, device_memory: Any) -> None:
    """Refuses memory on a GPU.

    Raises:
        DeviceError: "model.no-gpu".
    """
    if device_memory is not None:
        raise DeviceError(
            "this bundle's engines run on the CPU (backend {})".format(manifest.backend),
            code="model.no-gpu",
            where=manifest.name,
            hint="load it without device_memory",
        )


def open_engines(
    checked: Checked,
    threads: int = 0,
    profile: Optional[Path] = None,
    segments: Optional[Sequence[SegmentEntry]] = None,
    *,
    memory: None = None,
) -> Dict[Tuple[str, str], ReferenceEngine]:
    """Opens engines of the bundle, refitted with its weights.

    Args:
        checked: A bundle whose signature and manifest were checked.
        threads: Threads of each session; 0 for ONNX Runtime's default.
        profile: A folder for ONNX Runtime's profiles.
        segments: The segments whose engines are opened; None for all.
        memory: A parameter of other backends; None here.

    Returns:
        Engines by digest and device; all devices are this machine's processor and share an engine.

    Raises:
        DeviceError: "board.no-onnxruntime", "blob.*", "refit.mismatch", "engine.invalid".
    """
    manifest = checked.manifest
    all_segments = [segment for segment in manifest.segments() if segment.device != CPU]
    wanted_segments = all_segments if segments is None else segments
    # an engine that several segments use is read and opened once
    first = {segment.engine: segment for segment in wanted_segments}
    engines, faults = {}, []
    for digest in first:
        data = bytes(read_checked(checked, digest))
        engines[digest] = (data, read_engine(data, digest))
        faults += weight_faults(engines[digest][1], dict(manifest.weights))
    used = {weight.name for _, facts in engines.values() for weight in facts.weights}
    # engines of other variants have other weights
    if {segment.engine for segment in all_segments} == set(engines):
        faults += ["no engine has {!r}".format(n[:80]) for n in manifest.weights if n not in used]
    if faults:
        raise DeviceError(
            "weights do not fit the engines: {}".format(listed(faults, between="; ")),
            code="refit.mismatch",
            where=checked.files.where,
            hint="the weights need the names, types and shapes of the stripped ones",
        )
    opened = {
        digest: _open(checked, first[digest], data, facts, threads, profile)
        for digest, (data, facts) in engines.items()
    }
    return {(segment.engine, segment.device): opened[segment.engine] for segment in wanted_segments}


def open_on_cpu(
    checked: Checked,
    threads: int,
    profile: Optional[Path],
    segments: Sequence[SegmentEntry],
) -> Dict[Tuple[str, str], Any]:
    """Opens segments that run on the CPU with any backend: ONNX files with their weights, and
    Python parts.

    Args:
        checked: A bundle whose signature and manifest were checked.
        threads: Threads of each session; 0 leaves it to ONNX Runtime.
        profile: A folder for ONNX Runtime's profiles.
        segments: The segments.

    Returns:
        Engines by digest and device.

    Raises:
        DeviceError: "board.no-onnxruntime", "board.no-torch", "blob.*", "engine.invalid",
            "engine.untrusted".
    """
    found: Dict[Tuple[str, str], Any] = {}
    for segment in segments:
        key = segment.engine, segment.device
        if key in found:
            continue
        if checked.manifest.blobs[segment.engine].kind == PYTHON:
            found[key] = open_python(checked, segment)
            continue
        data = bytes(read_checked(checked, segment.engine))
        facts = read_engine(data, segment.engine)
        if facts.weights:
            raise DeviceError(
                "an engine on the CPU lacks its weights",
                code="engine.invalid",
                where="segment {} on {}".format(segment.index, segment.device),
            )
        found[key] = _open(checked, segment, data, facts, threads, profile)
    return found


def _open(
    checked: Checked,
    segment: SegmentEntry,
    data: bytes,
    facts: EngineFacts,
    threads: int,
    profile: Optional[Path],
) -> ReferenceEngine:
    try:
        import onnxruntime as ort
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise  # it is there, and broken
        raise DeviceError(
            "ONNX Runtime is needed for this bundle's engines and is not installed",
            code="board.no-onnxruntime",
            where=checked.files.where,
            hint="python3 -m pip install onnxruntime",
        ) from error
    options = ort.SessionOptions()
    options.log_severity_level = _SEVERITY_ERROR
    options.intra_op_num_threads = threads
    level = checked.manifest.fingerprint.get("optimisation", "all")
    if level not in _OPTIMISATION:
        raise DeviceError(
            "unknown optimisation {!r}".format(level[:80]),
            code="manifest.invalid",
            where="fingerprint.optimisation",
        )
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _OPTIMISATION[level])
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile / segment.engine[:16])
    # a stripped engine has no values: they are passed beside the model
    names = [weight.name for weight in facts.weights]
    arrays = [weight_array(checked, checked.manifest.weights[name]) for name in names]
    try:
        if names:
            kinds = [weight.dtype for weight in facts.weights]
            values = [
                ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_TYPES[kind])
                if kind in BITS
                else ort.OrtValue.ortvalue_from_numpy(array)
                for array, kind in zip(arrays, kinds)  # noqa: B905
            ]
            options.add_external_initializers(names, values)
        session = ort.InferenceSession(
            data,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=_WRONG_FUSIONS,
        )
    except Exception as error:  # ONNX Runtime has no common base class of its own
        raise DeviceError(
            "ONNX Runtime cannot load the engine: {}".format(_first_line(error)),
            code="engine.invalid",
            where="segment {} on {}".format(segment.index, segment.device),
        ) from error
    _check_names(session, segment)
    # ONNX Runtime does not own the memory of external initialisers
    return ReferenceEngine(session, arrays)


def _check_names(session: Any, segment: SegmentEntry) -> None:
    inputs = {item.name for item in session.get_inputs()}
    outputs = {item.name for item in session.get_outputs()}
    if inputs != set(segment.inputs) or not set(segment.outputs) <= outputs:
        raise DeviceError(
            "the engine's inputs or outputs differ from its segment's",
            code="engine.invalid",
            where="segment {} on {}".format(segment.index, segment.device),
        )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
