"""edgekit_device: what runs on the board.

    import edgekit_device
    model = edgekit_device.load("~/.edgekit/apps/resnet50")
    outputs = model({"x": image})

A TensorRT plan alone, of trtexec say, is loaded with ``load_plan``; what ``edgekit_device serve``
keeps loaded is called through ``connect``.

Python 3.8 and its library only; NumPy, ONNX Runtime and TensorRT are imported where a model is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._client_serve import Client, connect
    from ._errors import DeviceError
    from ._load_plan import PlanModel, load_plan
    from ._model import Model, load

__version__ = "0.1.0"
__all__ = [
    "Client",
    "DeviceError",
    "Model",
    "PlanModel",
    "__version__",
    "connect",
    "load",
    "load_plan",
]

# imported when they are asked for: most commands of a board need none of them
_HOMES = {
    "Client": "_client_serve",
    "DeviceError": "_errors",
    "Model": "_model",
    "PlanModel": "_load_plan",
    "connect": "_client_serve",
    "load": "_model",
    "load_plan": "_load_plan",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))
    value = getattr(import_module("." + _HOMES[name], __name__), name)
    globals()[name] = value
    return value
