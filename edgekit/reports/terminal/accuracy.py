"""The accuracy of a build as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgekit.reference.accuracy import describe_parts


def accuracy_figures(accuracy: Mapping[str, Any]) -> str:
    """Returns how near the whole is to FP32, in one line."""
    return (
        f"against FP32: cosine {accuracy['cosine']:.6f}, "
        f"top-1 agreement {100 * accuracy['top1_agreement']:.0f} %"
    )


def accuracy_lines(accuracy: Mapping[str, Any], *, emulated: bool) -> Iterator[str]:
    """Yields on what data an accuracy is, and what the figures of the whole hide."""
    yield f"  on {accuracy['data']}" + (", emulated on this CPU" if emulated else "")
    for part in describe_parts(accuracy):
        yield f"  {part}"
