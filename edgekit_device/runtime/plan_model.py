"""``load_plan``: runs a single TensorRT plan without a bundle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

from edgekit_device.cuda.memory import DeviceTensor, Tensor
from edgekit_device.errors import DeviceError, map_os_errors
from edgekit_device.files import map_file
from edgekit_device.protocol.manifest import EngineEntry, MemorySettings
from edgekit_device.store.root import default_root
from edgekit_device.tensorrt.engine import TensorRTEngine, describe_io, io_names
from edgekit_device.tensorrt.memory import MemoryPlan
from edgekit_device.tensorrt.plan import read_header
from edgekit_device.tensorrt.refit import refit
from edgekit_device.tensorrt.runtimes import Runtimes
from edgekit_device.versions import show

if TYPE_CHECKING:
    import numpy as np


class PlanModel:
    """A loaded plan; call it with arrays or tensors on the device by input name.

    Attributes:
        version: TensorRT's version that built it.
        inputs: Its inputs with their memory layout; axes of -1 take any size within a profile.
        outputs: Its outputs.
        notes: Sentences about possible problems on this board.
        engine: The engine; ``enqueue`` leaves results on the device.
    """

    def __init__(self, engine: Any, version: str, notes: Any) -> None:
        self.engine = engine
        self.version = version
        self.notes = tuple(notes)
        self.inputs = engine.inputs
        self.outputs = engine.outputs

    def __call__(self, inputs: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Runs once and fetches every output, in the engine's own types.

        Raises:
            DeviceError: "input.missing", "input.shape", "input.dtype" or "engine.failed".
        """
        made: Dict[str, Tensor] = self.engine.enqueue(inputs)
        return {
            name: output.numpy() if isinstance(output, DeviceTensor) else output
            for name, output in made.items()
        }


def load_plan(
    path: Union[str, os.PathLike[str]],
    *,
    trusted: bool = False,
    dla_core: Optional[int] = 0,
    version_compatible: bool = True,
    onnx: Union[str, os.PathLike[str], None] = None,
    scales: Optional[Mapping[str, float]] = None,
    threads: int = 0,
    device_memory: Any = None,
    persistent_cache: float = 0.0,
    weight_budget: Optional[int] = None,
) -> PlanModel:
    """Loads a plan that trtexec or another builder made.

    A plan does not contain its build settings or its origin, so the caller passes them. TensorRT
    itself decides if the plan fits this board.

    Args:
        path: The plan.
        trusted: Allows code in the plan (a lean runtime) to run: only for plans of known origin.
        dla_core: DLA core that it may use, or None; ignored if the board has no DLA.
        version_compatible: Also tries runtimes of other versions; False requires the same version.
        onnx: The ONNX file that it was built from, for a plan without weights. Not verified: a
            plan built with REFIT_IDENTICAL gives undefined results with another file's weights.
        scales: Value of one step of INT8 inputs and outputs by name; tensors without a scale are
            passed as INT8 steps.
        threads: Threads of the runtime; 0 leaves its default.
        device_memory: A tensor on the GPU (PyTorch, CuPy) that it uses while it runs, instead of
            TensorRT's own memory; threads that call the model at once take turns.
        persistent_cache: Share of the GPU's persistent L2 cache, 0 to 1.
        weight_budget: Bytes of its streamed weights that stay on the GPU; -1 for TensorRT's
            choice, None for all bytes.

    Raises:
        DeviceError: "engine.*", "refit.*", "board.no-gpu", "board.no-tensorrt", "tensorrt.*",
            "memory.*", "cuda.*" or "board.io".
    """
    file = Path(os.path.expanduser(path))
    with map_os_errors(str(file)):
        data = map_file(file)
    version = read_header(data, str(file))
    runtimes = Runtimes(default_root(), threads)
    loaded = None
    # first as a plan without a lean runtime, so that no code in the plan runs if that works
    for embedded in (False, True) if version_compatible else (False,):
        about = EngineEntry(
            "plan", show(version), False, version_compatible, embedded, "none", dla_core, (), ()
        )
        try:
            choices = runtimes.choices(version, about, trusted, str(file))
        except DeviceError:
            # it is unknown if the plan embeds a runtime: the last refusal counts
            if (embedded or not version_compatible) and not runtimes.has_failed():
                raise
            continue
        for choice in choices:
            core = dla_core if dla_core is None else runtimes.core(choice, dla_core)
            loaded = runtimes.load(data, choice, core, str(file))
            if loaded is not None:
                break
        if loaded is not None:
            break
    if loaded is None:
        raise runtimes.failure()
    if onnx is not None:
        refit(loaded.trt, loaded.engine, Path(os.path.expanduser(onnx)), where=str(file))
    settings = MemorySettings(persistent_cache=persistent_cache, weight_budget=weight_budget)
    plan = MemoryPlan(settings, ["GPU"], tensor=device_memory)
    memory = plan.engine(loaded, runtimes.cuda(), "GPU")
    context = memory.context(cached=False)
    if context is None:
        raise loaded.listener.error("TensorRT created no execution context", "tensorrt.no-memory")
    inputs, outputs = (
        [describe_io(loaded.engine, context, name, (scales or {}).get(name)) for name in names]
        for names in io_names(loaded.engine)
    )
    # before 10.0 a profile may be limited to one context at a time
    del context
    engine = TensorRTEngine(loaded, runtimes.cuda(), inputs, outputs, memory=memory)
    plan.open()
    return PlanModel(engine, show(version), [*runtimes.notes, *plan.notes])
