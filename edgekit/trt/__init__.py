"""The trt floor: what TensorRT's releases have, what goes together, and trtexec's command lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.trt._types import Attempt, Choice, Decision, Wish

__all__ = ["Attempt", "Choice", "Decision", "Wish"]

__getattr__ = lazy(__name__, {"_types": "Attempt Choice Decision Wish"})
