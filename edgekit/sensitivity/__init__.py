"""What INT8 costs layer by layer, and which layers to keep in FP16 for a wanted accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit._callable import make_callable
from edgekit._lazy import lazy

if TYPE_CHECKING:
    from edgekit.sensitivity._analyse import analyse
    from edgekit.sensitivity._document import sensitivity_document
    from edgekit.sensitivity._gate import METRICS, Metric, impossible
    from edgekit.sensitivity._names import layers_named
    from edgekit.sensitivity._propose import propose, reaches, shortfall
    from edgekit.sensitivity._types import Impact, Proposal, Sensitivity
    from edgekit.sensitivity._with_fp16 import with_fp16

__all__ = [
    "METRICS",
    "Impact",
    "Metric",
    "Proposal",
    "Sensitivity",
    "analyse",
    "impossible",
    "layers_named",
    "propose",
    "reaches",
    "sensitivity_document",
    "shortfall",
    "with_fp16",
]

__getattr__ = lazy(
    __name__,
    {
        "_analyse": "analyse",
        "_document": "sensitivity_document",
        "_gate": "METRICS Metric impossible",
        "_names": "layers_named",
        "_propose": "propose reaches shortfall",
        "_types": "Impact Proposal Sensitivity",
        "_with_fp16": "with_fp16",
    },
)

make_callable(__name__)
