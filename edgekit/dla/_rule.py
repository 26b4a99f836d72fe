"""What a rule and a row of the operator matrix are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgekit.dla._checks import Check
from edgekit.dla._versions import Version, parse_version

__all__ = ["ANY_KIND", "GENERATIONS", "PRECISIONS", "Operator", "Rule", "Way"]

ANY_KIND = "*"
# of the DLA, with the family of modules that has it
GENERATIONS = {"1.0": "Xavier", "2.0": "Orin"}
PRECISIONS = ("fp16", "int8")


_OPERATOR = "an ONNX operator whose row of the matrix has a fix"
_OPERATORS_FIX = "that one: `edgekit explain OPERATOR`"
_FACT = re.compile(r"\{(\w+)\}")


def _open(fix: str) -> str:
    """Returns a fix without a layer: its facts are [in brackets]."""
    return _FACT.sub(lambda fact: f"[{fact[1].replace('_', ' ')}]", fix)


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """What a user can do where ``when`` holds; it brings the layer to the DLA if it ``mends``.

    ``of`` says in words what ``when`` holds for.
    """

    when: Check
    of: str
    fix: str
    mends: bool


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One restriction.

    Attributes:
        id: Stable identifier, for example "convolution.kernel".
        family: The file that it stands in.
        text: The restriction in one sentence.
        kinds: Layer kinds it holds for; "*" is all.
        exempt: Layer kinds it does not hold for.
        limit: The limit as people read it; empty where it is part of the text.
        fix: What a user can do.
        ways: What to do instead of ``fix`` in certain cases; the first whose condition holds.
        sources: Titles of the documents it comes from.
        places: Where each of them is found.
        generations: DLA generations it holds for.
        precisions: Precisions of the layer it holds for.
        since: First TensorRT release it holds for, or None.
        until: First TensorRT release it no longer holds for, or None.
        certainty: "certain", or "disputed" where the sources are silent or disagree.
        effect: "refuse", "risk" (allowed, but unsure) or "note" (not checked on a layer).
        network: Holds for the network as a whole, not layer by layer.
        found: How to say what was found, with facts and the wrong ``{value}`` in braces; made from
            the check when empty.
        brief: The text says what is allowed, so that a message need not.
        runs_in: The precision in which the DLA computes such a layer whatever the build's is.
        needs_gpu: A part of such a layer runs on the GPU, so a plan places none on a DLA.
        operator_fix: The operator matrix may know a better fix.
        mends: The fix brings the layer to the DLA; False where it only says to leave it.
        when: The rule applies only where this holds.
        check: The compiled restriction; None for a note.
        counts: A note is told as a warning where this fails for some layer.
        warning: That warning, with ``{tensorrt}`` and ``{layers}`` ("1 layer is").
        ties: Which tensors share one INT8 scale, as written (see ``_ties.py``); None for no such
            rule.
    """

    id: str
    family: str
    text: str
    kinds: tuple[str, ...]
    exempt: tuple[str, ...]
    limit: str
    fix: str
    ways: tuple[Way, ...]
    sources: tuple[str, ...]
    places: tuple[str, ...]
    generations: tuple[str, ...]
    precisions: tuple[str, ...]
    since: str | None
    until: str | None
    certainty: str
    effect: str
    network: bool
    found: str
    brief: bool
    runs_in: str
    needs_gpu: bool
    operator_fix: bool
    mends: bool
    when: Check | None
    check: Check | None
    counts: Check | None = None
    warning: str = ""
    ties: Mapping[str, Any] | None = None

    def holds_for(self, kind: str, generation: str, version: Version) -> bool:
        """Whether the rule is in force for a layer kind, DLA generation and TensorRT release.

        A rule of the whole network holds for every kind; a board without a DLA has generation "".
        """
        if kind in self.exempt:
            return False
        if kind not in self.kinds and ANY_KIND not in self.kinds:
            return False
        if generation and generation not in self.generations:
            return False
        if self.since is not None and version < parse_version(self.since):
            return False
        return self.until is None or version < parse_version(self.until)

    def _fixes(self) -> list[dict[str, str]]:
        """Returns what ``check`` says to do by what it is about, the first that fits a layer."""
        found = [{"for": way.of, "fix": _open(way.fix)} for way in self.ways]
        if self.operator_fix:
            found.insert(0, {"for": _OPERATOR, "fix": _OPERATORS_FIX})
        return [*found, {"for": "all else", "fix": _open(self.fix)}] if found else []

    def to_json(self) -> dict[str, Any]:
        """Returns what a person wants to know of the rule, as plain values.

        ``fix`` is what to do where none of ``fixes`` is for the layer.
        """
        return {
            "id": self.id,
            "family": self.family,
            "text": self.text,
            "limit": self.limit,
            "fix": _open(self.fix),
            "fixes": self._fixes(),
            "source": "; ".join(self.sources),
            "sources": [
                {"title": title, "where": place}
                for title, place in zip(self.sources, self.places, strict=True)
            ],
            "certainty": self.certainty,
            "effect": self.effect,
            "network": self.network,
            "kinds": list(self.kinds),
            "generations": list(self.generations),
            "precisions": list(self.precisions),
            "since": self.since,
            "until": self.until,
        }


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the operator matrix: what TensorRT and the DLA software have for an ONNX operator.

    Attributes:
        name: The ONNX operator.
        trt: What TensorRT exposes: "native", "reconstruction", "rfe" or "folded".
        dla: What the DLA software below it has, in the same words.
        since: First TensorRT release; empty where it is not known to be missing from any.
        dla_since: First DLA software.
        families: Rule families that judge its layers.
        composed: TensorRT's parser writes several layers, which the rules judge one by one.
        fix: What NVIDIA says to do instead, empty when it says nothing.
        mends: The fix brings it to the DLA; False where only the DLA software could follow it.
        settled_by: The rule that decides instead of the row.
    """

    name: str
    trt: str
    dla: str
    since: str
    dla_since: str
    families: tuple[str, ...]
    composed: bool
    fix: str
    mends: bool
    settled_by: str

    def to_json(self) -> dict[str, Any]:
        """Returns the row as plain values."""
        return {
            "operator": self.name,
            "tensorrt": self.trt,
            "since": self.since or None,
            "dla_software": self.dla,
            "dla_software_since": self.dla_since or None,
            "families": list(self.families),
            "composed": self.composed,
            "fix": self.fix,
            "settled_by": self.settled_by or None,
        }
