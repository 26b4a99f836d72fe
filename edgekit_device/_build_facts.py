"""What a built engine is: its inputs and outputs, layers and weights, and the plan with weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._build_inspect import inspect_text
from ._build_network import DTYPES
from ._build_strides import strides
from ._build_types import EngineSpec, IoSpec
from ._store import map_file

__all__ = ["PlanFacts", "asked_io", "plan_facts"]

_MODES = {"INPUT": "input", "OUTPUT": "output"}


@dataclass
class PlanFacts:
    """Facts of a plan that was loaded once.

    Attributes:
        io: ``{"name", "mode", "dtype", "shape", "format", "strides", "scale"}`` of each tensor.
        weights: ``{"dtype", "shape" or None, "count"}`` by the name that a refit takes.
        inspector: The engine inspector's JSON; "" where it gave none.
        full: The plan refitted and whole; None where the plan lacks nothing.
        notes: For people.
    """

    io: List[Dict[str, Any]]
    weights: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    inspector: str = ""
    full: Optional[bytes] = None
    notes: List[str] = field(default_factory=list)


def asked_io(spec: EngineSpec, scales: Mapping[str, float], dla: str) -> List[Dict[str, Any]]:
    """Inputs and outputs as they were asked for: what a loadable has, which nothing here opens.

    Args:
        spec: The engine.
        scales: Of the calibration cache.
        dla: DLA generation ("1.0", "2.0").
    """
    return [
        _io(io.name, mode, io.dtype, io.shape, (io.formats or ("LINEAR",))[0], io, scales, dla)
        for mode, tensors in (("input", spec.inputs), ("output", spec.outputs))
        for io in tensors
    ]


def plan_facts(
    trt: Any,
    plan: bytes,
    spec: EngineSpec,
    flags: Sequence[str],
    *,
    model: Path,
    scales: Mapping[str, float],
    dla: str,
    temporary: Optional[Path] = None,
) -> PlanFacts:
    """Loads a plan that was just built, looks at it, and refits it where it lacks its weights.

    Raises:
        DeviceError: "engine.*", "refit.*" or "tensorrt.*": the plan is of no use here.
    """
    from ._trt_load import deserialize
    from ._trt_pick import Choice

    # made a moment ago by this board's own TensorRT: the lean runtime in it may run
    compatible = "VERSION_COMPATIBLE" in flags
    embedded = compatible and "EXCLUDE_LEAN_RUNTIME" not in flags
    loaded = deserialize(
        trt,
        plan,
        Choice("full", host_code=embedded),
        dla_core=spec.dla_core,
        temporary=temporary,
        where=spec.key,
    )
    engine = loaded.engine
    facts = PlanFacts(io=_engine_io(engine, spec, scales, dla))
    try:
        facts.inspector = inspect_text(trt, engine)
    except Exception as error:  # a runtime without the inspector's types raises pybind11's own
        facts.notes.append("{}: no engine inspector: {}".format(spec.key, error))
    if engine.refittable:
        facts.weights = _weights(trt, engine, model, spec.key)
    if "STRIP_PLAN" in flags:
        from ._trt_refit import full_plan, refit

        refit(trt, engine, model, where=spec.key)
        facts.full = full_plan(trt, engine, lean=embedded, compatible=compatible, where=spec.key)
    return facts


def _engine_io(
    engine: Any, spec: EngineSpec, scales: Mapping[str, float], dla: str
) -> List[Dict[str, Any]]:
    asked = {io.name: io for io in (*spec.inputs, *spec.outputs)}
    found = []
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        dtype = engine.get_tensor_dtype(name).name
        found.append(
            _io(
                name,
                _MODES[engine.get_tensor_mode(name).name],
                DTYPES.get(dtype, dtype.lower()),
                tuple(engine.get_tensor_shape(name)),
                engine.get_tensor_format(name).name,
                asked.get(name),
                scales,
                dla,
            )
        )
    return found


def _io(
    name: str,
    mode: str,
    dtype: str,
    shape: Sequence[int],
    format: str,
    asked: Optional[IoSpec],
    scales: Mapping[str, float],
    dla: str,
) -> Dict[str, Any]:
    scale = asked.scale if asked is not None else None
    if dtype == "int8" and scale is None:
        scale = scales.get(name)
    return {
        "name": name,
        "mode": mode,
        "dtype": dtype,
        "shape": list(shape),
        "format": format,
        "strides": [] if -1 in shape else list(strides(shape, dtype, format, dla)),
        "scale": scale if dtype == "int8" else None,
    }


def _weights(trt: Any, engine: Any, model: Path, where: str) -> Dict[str, Dict[str, Any]]:
    from ._refit_rules import named_weights
    from ._trt_refit import weights_of

    found = {}
    told = weights_of(trt, engine, where)
    arrays = named_weights(map_file(model), model.parent, told)
    for name, facts in told.items():
        array = arrays.get(name)
        # before 10.0 only the model says what the weights are
        found[name] = {
            "dtype": facts["dtype"] or (str(array.dtype) if array is not None else ""),
            "shape": None if array is None else list(array.shape),
            "count": facts["count"] or (int(array.size) if array is not None else 0),
        }
    return found
