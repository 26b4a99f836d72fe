"""A camera's frames as a model's input: written by a kernel where a GPU runs it, else by NumPy."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from ._camera import CameraFrame, frame_bytes_needed
from ._camera_values import frame_values
from ._convert import convert
from ._errors import DeviceError
from ._packing import pack
from ._tensor import DeviceBuffer, DeviceTensor
from ._types import IoEntry

if TYPE_CHECKING:
    import numpy as np

    from ._model import Model

__all__ = ["CameraInput"]


class CameraInput:
    """Feeds one input of a loaded model with frames; call it with a frame's bytes.

    On a GPU the frame is copied there as it is, and one kernel writes it in the type and format
    that the engine reads. The first result is compared with NumPy's, bit for bit: a kernel that
    differs on this board, or cannot be compiled, is not asked again.

    Args:
        model: The loaded model.
        frame: How a frame's bytes lie, and mean and factor of the network.
        name: The input; needed where the model has several.

    Attributes:
        on_gpu: Whether a kernel writes the input; None before the first frame.

    Raises:
        DeviceError: "input.missing", "input.unknown", "camera.size", "camera.pitch" or
            "camera.kind".
    """

    def __init__(self, model: Model, frame: CameraFrame, name: str = "") -> None:
        names = [tensor.name for tensor in model.inputs]
        if not name and len(names) != 1:
            raise DeviceError(
                "which of the inputs {} shows the camera?".format(", ".join(names)),
                code="input.missing",
                where=model.name,
            )
        self.name = name or names[0]
        if self.name not in names:
            raise DeviceError(
                "there is no input {!r}".format(self.name[:80]),
                code="input.unknown",
                where=model.name,
                hint="the model's inputs are {}".format(", ".join(names)),
            )
        (self._tensor,) = [tensor for tensor in model.inputs if tensor.name == self.name]
        wanted = (1, 3, frame.height, frame.width)
        if tuple(self._tensor.shape) != wanted:
            raise DeviceError(
                "the input has the shape {}, frames give {}".format(
                    list(self._tensor.shape), list(wanted)
                ),
                code="camera.size",
                where=self.name,
                hint="scale frames beforehand: the input is (1, 3, height, width) of the frame",
            )
        self._bytes = frame_bytes_needed(frame)
        self._model = model
        self._frame = frame
        self._lock = threading.Lock()
        self._packer: Any = None
        self.on_gpu: Optional[bool] = None
        self._lane = max(range(len(model.lanes)), key=lambda i: (model.lanes[i].share, -i))
        self._engines = self._readers()
        self._io = self._wanted()

    def __call__(
        self, memory: np.ndarray, others: Optional[Mapping[str, np.ndarray]] = None
    ) -> Dict[str, np.ndarray]:
        """Runs one frame.

        Args:
            memory: The frame's bytes, UINT8, with the padding of its lines.
            others: The model's other inputs by name.

        Returns:
            An array by output name.

        Raises:
            DeviceError: "camera.size", or as the model.
        """
        written = self._on_gpu(memory)
        if written is not None:
            import numpy as np

            feeds: Dict[str, Any] = {}
            if others or len(self._model.inputs) > 1:
                shown = np.zeros(self._tensor.shape, self._tensor.dtype)
                feeds.update(self._model.check({**(others or {}), self.name: shown}))
            feeds[self.name] = written
            return self._model.run_lane(self._lane, feeds)
        values = frame_values(self._frame, memory).astype(self._tensor.dtype)
        return self._model({**(others or {}), self.name: values})

    def _readers(self) -> List[Any]:
        lane = self._model.lanes[self._lane]
        pairs = zip(lane.segments, lane.runs)  # noqa: B905
        return [getattr(run, "engine", None) for one, run in pairs if self.name in one.inputs]

    def _wanted(self) -> Any:
        """The entry of the one engine that reads the input; else the network's own tensor."""
        found = []
        for engine in self._engines:
            for one in getattr(engine, "inputs", ()):
                io = one[0] if isinstance(one, tuple) else one  # a loadable's have their sizes
                if getattr(io, "name", None) == self.name:
                    found.append(io)
        if len(found) == 1 and -1 not in found[0].shape:
            return found[0]
        return IoEntry(self.name, self._tensor.dtype, self._tensor.shape, "LINEAR", (), None)

    def _on_gpu(self, memory: np.ndarray) -> Optional[DeviceTensor]:
        import numpy as np

        flat = np.ascontiguousarray(memory).reshape(-1)
        if self.on_gpu is False or flat.dtype != np.uint8 or flat.size < self._bytes:
            return None  # NumPy says what is wrong with a frame
        try:
            cuda = self._kernels()
            if cuda is None:
                return None
            io, frame = self._io, self._frame
            cuda.bind()
            wanted = None
            if self.on_gpu is None:
                values = convert(frame_values(frame, flat), io.dtype, None, io.scale)
                wanted = pack(values, io.format, io.strides).reshape(-1).view(np.uint8)
            source = DeviceBuffer(cuda, flat.nbytes)
            target = DeviceBuffer(cuda, self._size())
            cuda.copy(source.ptr, flat.ctypes.data, flat.nbytes, "h2d")
            self._packer.camera(source.ptr, frame, target.ptr, io)
            cuda.synchronize()
            if wanted is not None:
                self.on_gpu = bool(np.array_equal(target.fetch(), wanted))
        except DeviceError:
            if self.on_gpu:
                raise  # it worked before: the device has failed
            self.on_gpu = False
        if not self.on_gpu:
            return None
        steps = tuple(io.strides)
        return DeviceTensor(
            target.ptr, target.nbytes, io.dtype, tuple(io.shape), io.format, steps, io.scale, target
        )

    def _size(self) -> int:
        from ._trt_io import io_bytes

        return io_bytes(self._io)

    def _kernels(self) -> Any:
        """The GPU of the engines that read the input; None where they have none."""
        with self._lock:
            found = [getattr(e, "cuda", None) or getattr(e, "_cuda", None) for e in self._engines]
            if not found or None in found:
                self.on_gpu = False
                return None
            if self._packer is None:
                from ._kernels import Packer
                from ._root import default_root

                root = default_root()
                self._packer = Packer(found[0], root / "kernels" if root.is_dir() else None)
            return found[0]
