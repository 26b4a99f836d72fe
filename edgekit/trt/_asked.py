"""The features that a wish comes to, by kind of engine: asked for, or left to edgekit."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.trt._types import Wish

__all__ = ["Asked", "asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Features of one kind of engine.

    Attributes:
        kind: "plan" or "loadable".
        firm: What the plan needs or the configuration asks for: never dropped silently.
        soft: What edgekit takes where it can be had, in the order in which it is decided.
    """

    kind: str
    firm: tuple[str, ...]
    soft: tuple[str, ...]

    @staticmethod
    def unit(name: str, other: str) -> bool:
        """Whether leaving ``name`` out answers a doubt about ``other``."""
        if name == "STRIP_PLAN":
            return other in ("STRIP_PLAN", "REFIT_IDENTICAL")
        if name == "VC":
            return other in ("VC", "EXCLUDE_LEAN")
        if name == "REFIT":
            return other in ("REFIT", "REFIT_INDIVIDUAL")
        return name == other


def asked(wish: Wish, kind: str, typing: str) -> Asked:
    """Returns the features of one kind of engine.

    Args:
        wish: What is asked.
        kind: "plan" or "loadable".
        typing: "weak" or "strong".
    """
    firm: list[str] = []
    soft: list[str] = []
    if kind == "loadable":
        firm.append("DLA_STANDALONE")
    elif wish.mode == "hybrid" and wish.dla:
        firm.append("DLA_HYBRID")
    if typing == "strong":
        firm.append("STRONGLY_TYPED")
    if wish.qdq:
        firm.append("QDQ")
    elif wish.precision == "int8":
        firm.append("INT8_CALIB")
    given = {
        "HW_COMPAT": wish.hardware_compatible,
        "WEIGHT_STREAMING": wish.weight_streaming,
        "DYNAMIC_SHAPES": wish.dynamic,
        # loadables of a split build have none: their layers are the DLA's
        "PLUGINS": wish.plugins and (kind == "plan" or wish.mode == "standalone"),
        "CUDA_GRAPH": wish.cuda_graph,
    }
    firm += [name for name, wanted in given.items() if wanted]
    # in a split build the loadables are what they are, and these are about its plans
    if kind == "plan" or wish.mode == "standalone":
        _chosen(wish, firm, soft)
    if kind == "plan" and wish.mode == "split":
        soft.append("DIRECT_IO")
    return Asked(kind, tuple(firm), tuple(soft))


def _chosen(wish: Wish, firm: list[str], soft: list[str]) -> None:
    choices = (("VC", wish.version_compatible), ("STRIP_PLAN", wish.strip))
    for name, choice in choices:
        if choice is True:
            firm.append(name)
        elif choice == "auto":
            soft.append(name)
    if wish.lean == "external" and wish.version_compatible is True:
        firm.append("EXCLUDE_LEAN")
    elif wish.lean != "embedded":
        soft.append("EXCLUDE_LEAN")
    if wish.refit == "identical":
        soft.append("REFIT_IDENTICAL")
    else:
        firm.append("REFIT" if wish.refit == "any" else "REFIT_INDIVIDUAL")
