"""ONNX Runtime on a model, with the weights lent and not copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from edgekit.errors import EnvironmentLack, ModelError
from edgekit.network.protos import nearest

if TYPE_CHECKING:
    from edgekit.network.model import Model


#: ONNX Runtime's graph optimisations that go wrong (1.31), which no session of edgekit's may use.
#: Pad_Fusion moves a Pad's pads into the pool after it also where they are as large as its
#: window, which the pool then refuses; ClipQuantRewrite drops a Clip before a QuantizeLinear whose
#: bounds differ from the code's range by less than some 1e-8, whatever the scale.
WRONG_FUSIONS = ("Pad_Fusion", "ClipQuantRewrite")

# ONNX Runtime's "fatal": what goes wrong is raised, nothing else is printed
_QUIET = 4


def session(
    model: Model,
    *,
    outputs: Sequence[str] | None = None,
    optimise: bool = True,
    threads: int = 0,
) -> Any:
    """An ``onnxruntime.InferenceSession`` on the CPU.

    Args:
        model: The model; its weights are referenced by the session as long as it lives.
        outputs: Tensors to return, intermediate ones too; the model's outputs when None.
        optimise: False turns ONNX Runtime's graph optimisations off, so that every node runs as
            it is written.
        threads: Threads for one operator; 0 leaves it to ONNX Runtime.

    Raises:
        ModelError: ``model.unknown_output`` or ``model.runtime`` (ONNX Runtime refuses the model).
        EnvironmentLack: ``environment.onnxruntime``.
    """
    _runtime()
    proto = model.proto if outputs is None else _with_outputs(model.proto, outputs)
    lent = {name: lent_value(array) for name, array in model.weights.items()}
    try:
        return open_session(proto.SerializeToString(), lent, optimise=optimise, threads=threads)
    except Exception as error:
        # ONNX Runtime's own exceptions share no base class but Exception
        reason = " ".join(str(error).split())
        opaque = model.graph.opaque
        if opaque:
            raise ModelError(
                f"ONNX Runtime cannot run node {next(iter(opaque))!r}, because only the board "
                "has its plugin or shapes",
                code="model.opaque",
                where=model.source,
                hint="cut the network before it with model.outputs (--outputs)",
            ) from error
        raise ModelError(
            f"ONNX Runtime cannot run the model: {reason}",
            code="model.runtime",
            where=model.source,
            hint="check the node named in the message; the reference backend needs ONNX Runtime "
            "to run the model",
        ) from error


def open_session(
    data: bytes | str,
    lent: Mapping[str, Any],
    *,
    optimise: bool = True,
    threads: int = 0,
    arena: bool = True,
    prepack: bool = True,
) -> Any:
    """An ``onnxruntime.InferenceSession`` on the CPU; raises what ONNX Runtime does.

    Args:
        data: The model, serialised; or the path of its file.
        lent: Values of :func:`lent_value` for its initializers without data.
        optimise: False turns ONNX Runtime's graph optimisations off.
        threads: Threads for one operator; 0 leaves it to ONNX Runtime.
        arena: Whether it keeps memory between its runs.
        prepack: Whether it makes copies of weights in a form that is quicker in many runs.
    """
    ort = _runtime()
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = threads
    options.enable_cpu_mem_arena = arena
    # nothing here is timed, and threads that wait busily take others' time: half of all CPU seconds
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not prepack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_external_initializers(list(lent), list(lent.values()))
    made = ort.InferenceSession(
        data, options, providers=["CPUExecutionProvider"], disabled_optimizers=WRONG_FUSIONS
    )
    # the session reads them in place, so they live as long as it does
    made.edgekit_weights = list(lent.values())
    return made


def _runtime() -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        if error.name != "onnxruntime":
            raise
        raise EnvironmentLack(
            "ONNX Runtime is not installed",
            code="environment.onnxruntime",
            hint="pip install onnxruntime",
        ) from error
    return onnxruntime


def lent_value(array: np.ndarray) -> Any:
    """An array as a value that ONNX Runtime reads in place."""
    ort = _runtime()
    # broadcast views (weights that are one value) and unaligned ones (inside an .onnx file)
    # become real here, all others are lent
    whole = np.require(array, requirements=["C", "A"])
    if whole.dtype.kind in "fiub":
        return ort.OrtValue.ortvalue_from_numpy(whole)
    elem = int(helper.np_dtype_to_tensor_dtype(whole.dtype))
    bits = whole.view(np.dtype(f"uint{whole.itemsize * 8}"))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, elem)


def _with_outputs(proto: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    infos = {value.name: value for value in [*proto.graph.value_info, *proto.graph.output]}
    for name in outputs:
        if name not in infos:
            raise ModelError(
                f"unknown tensor {name!r}",
                code="model.unknown_output",
                where=name,
                hint=nearest(name, infos),
            )
    changed = onnx.ModelProto()
    changed.CopyFrom(proto)
    del changed.graph.output[:]
    changed.graph.output.extend(infos[name] for name in outputs)
    return changed
