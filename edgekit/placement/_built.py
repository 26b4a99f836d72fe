"""A network's placement problem together with what its indices stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.placement._handover import Way
from edgekit.placement._kernels import Kernel
from edgekit.solver import Problem

__all__ = ["Built"]


@dataclass(frozen=True)
class Built:
    """A problem for the solver and its meaning.

    Attributes:
        kernels: By node.
        problem: What the solver sees.
        tensors: By border, the tensor's name.
        ways: By (border, transfer): what its ways are; absent for what is no hand-over.
        free: The loadable's format where a hand-over costs nothing, by (border, producer's mode,
            reader's mode).
    """

    kernels: tuple[Kernel, ...]
    problem: Problem
    tensors: tuple[str, ...]
    ways: Mapping[tuple[int, int], tuple[Way, ...]]
    free: Mapping[tuple[int, int, int], str]
