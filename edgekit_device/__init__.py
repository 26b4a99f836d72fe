"""edgekit_device: the part of edgekit that runs on the board.

    import edgekit_device
    model = edgekit_device.load("~/.edgekit/apps/resnet50")
    outputs = model({"x": image})

``load_plan`` loads a single TensorRT plan, for example from trtexec; ``connect`` calls a model that
``edgekit_device serve`` keeps loaded.

It needs only Python 3.8 and its library; running a model imports NumPy, ONNX Runtime or TensorRT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from edgekit_device.version import __version__

if TYPE_CHECKING:
    from edgekit_device.detection.letterbox import Placing
    from edgekit_device.detection.results import Found
    from edgekit_device.errors import DeviceError
    from edgekit_device.runtime.model import Model, load
    from edgekit_device.runtime.need import memory_needed
    from edgekit_device.runtime.plan_model import PlanModel, load_plan
    from edgekit_device.serve.client import Client, connect

__all__ = [
    "Client",
    "DeviceError",
    "Found",
    "Model",
    "Placing",
    "PlanModel",
    "__version__",
    "connect",
    "load",
    "load_plan",
    "memory_needed",
]

# imported on first use: most commands of a board do not need these
_HOMES = {
    "Client": "serve.client",
    "DeviceError": "errors",
    "Found": "detection.results",
    "Model": "runtime.model",
    "Placing": "detection.letterbox",
    "PlanModel": "runtime.plan_model",
    "connect": "serve.client",
    "load": "runtime.model",
    "load_plan": "runtime.plan_model",
    "memory_needed": "runtime.need",
}

# deprecated names with their replacements: a name works for one minor release and warns
_FORMER = {}  # type: dict[str, str]


def __dir__() -> List[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _FORMER:
        import warnings

        text = "edgekit_device.{} is deprecated; use edgekit_device.{}".format(name, _FORMER[name])
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return getattr(import_module(__name__), _FORMER[name])
    if name not in _HOMES:
        raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))
    value = getattr(import_module("." + _HOMES[name], __name__), name)
    # later accesses find the name without this function
    globals()[name] = value
    return value
