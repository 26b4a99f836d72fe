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


def shared_with_gpu(format: str, dtype: str) -> bool:
    """Says whether engines of the GPU read and write a type in a format of loadables too.

    Args:
        format: TensorRT's name.
        dtype: "int8" or "float16".
    """
    return dtype in format_facts()["formats"][format].get("gpu", ())
