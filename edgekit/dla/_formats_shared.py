"""Which of a loadable's formats the GPU has too (``dla/formats.yaml``)."""

from __future__ import annotations

from functools import cache

from edgekit.dla._rules import format_facts

__all__ = ["shared_with_gpu", "vector_format"]


@cache
def vector_format(dtype: str) -> str:
    """Returns the format that a DLA computes a type in: any of its layers reads and writes it.

    Args:
        dtype: "int8" or "float16".
    """
    facts = format_facts()["formats"].items()
    return next(str(n) for n, own in facts if own["layout"] == "vector" and dtype in own["types"])


def shared_with_gpu(format: str) -> bool:
    """Says whether GPU kernels read and write a format too.

    They have the vectorised ones; DLA_LINEAR and DLA_HWC4 are the DLA's alone (TensorFormat,
    NvInferRuntimeBase.h).
    """
    return str(format_facts()["formats"][format]["layout"]) == "vector"
