"""An engine's context in one user's hands: what is enqueued again and again at fixed addresses."""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

from ._errors import DeviceError
from ._trt_feed import Tensor

__all__ = ["Held"]


class Held(NamedTuple):
    """A context that nobody else has, all of whose addresses are set.

    Attributes:
        context: TensorRT's.
        outputs: Where its outputs lie.
        error: Makes the error of a failed run.
    """

    context: Any
    outputs: Dict[str, Tensor]
    error: Callable[[], DeviceError]

    def enqueue(self, stream: int) -> None:
        """Enqueues it.

        Raises:
            DeviceError: "engine.failed".
        """
        if not self.context.execute_async_v3(stream):
            raise self.error()
