"""edgekit_device: what runs on the board.

    import edgekit_device
    model = edgekit_device.load("~/.edgekit/apps/resnet50")
    outputs = model({"x": image})

Python 3.8 and its library only; NumPy and ONNX Runtime are imported where a model is run.
"""

from __future__ import annotations

from ._errors import DeviceError
from ._model import Model, load

__version__ = "0.1.0"
__all__ = ["DeviceError", "Model", "__version__", "load"]
