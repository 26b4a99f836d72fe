"""What a comparison of prediction and builder holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.dla import MemoryNeed

__all__ = ["Comparison", "LayerComparison", "LoadableComparison", "LogOnly", "PoolComparison"]

SCHEMA = "edgekit.compare-log/1"


@dataclass(frozen=True, slots=True)
class LayerComparison:
    """One of our layers beside what the builder did with it.

    Attributes:
        layer: Our name.
        kind: Layer type.
        predicted: "DLA", "GPU", or "slots": the DLA could, but the core's subgraphs are used up.
        builder: The same, or "capable" (not refused; placement not told), or "" (not in the log).
        status: "agree"; "disagree" (one says that the DLA can run it, the other that it cannot);
            "slots" (both say it can, and they differ in which subgraphs find room); "unseen".
        certainty: Of our verdict, "certain" or "disputed".
        rules: Ids of our reasons against the DLA, or of risks.
        words: The builder's reasons.
        builder_rules: Rules that say the same as these words, as far as known.
        reasons: "same", "other", "unknown" (no rule is known for the words), or "" where one
            side gives none.
    """

    layer: str
    kind: str
    predicted: str
    builder: str
    status: str
    certainty: str
    rules: tuple[str, ...]
    words: tuple[str, ...]
    builder_rules: tuple[str, ...]
    reasons: str

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "predicted": self.predicted,
            "builder": self.builder or None,
            "status": self.status,
            "certainty": self.certainty,
            "rules": list(self.rules),
            "words": list(self.words),
            "builder_rules": list(self.builder_rules),
            "reasons": self.reasons or None,
        }


@dataclass(frozen=True, slots=True)
class PoolComparison:
    """One memory pool of a loadable, bytes: ``powers`` is log2 of predicted over builder's."""

    pool: str
    predicted: int
    builder: int
    powers: int

    @property
    def verdict(self) -> str:
        """ "right", "one power above", "above" or "below"."""
        if self.powers == 0:
            return "right"
        if self.powers < 0:
            return "below"
        return "one power above" if self.powers == 1 else "above"

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "pool": self.pool,
            "predicted": self.predicted,
            "builder": self.builder,
            "powers": self.powers,
            "verdict": self.verdict,
        }


@dataclass(frozen=True, slots=True)
class LoadableComparison:
    """A subgraph of the builder beside the predicted one; either may be missing.

    Attributes:
        name: The builder's name, empty where only we predict it.
        predicted: Our layers.
        builder: Our names of the builder's layers.
        only_predicted: Layers that only the prediction has in it.
        only_builder: Layers that only the builder has in it.
        pools: Managed SRAM, local and global DRAM; empty without figures in the log.
    """

    name: str
    predicted: tuple[str, ...]
    builder: tuple[str, ...]
    only_predicted: tuple[str, ...]
    only_builder: tuple[str, ...]
    pools: tuple[PoolComparison, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both sides have it, layer by layer."""
        return bool(self.predicted and self.builder) and not (
            self.only_predicted or self.only_builder
        )

    def to_json(self) -> dict[str, Any]:
        """Returns plain values; long layer lists by their ends and count."""
        ours, theirs = self.predicted, self.builder
        return {
            "name": self.name or None,
            "same": self.same,
            "predicted": {"layers": len(ours), "first": ours[0], "last": ours[-1]}
            if ours
            else None,
            "builder": {"layers": len(theirs), "first": theirs[0], "last": theirs[-1]}
            if theirs
            else None,
            "only_predicted": list(self.only_predicted),
            "only_builder": list(self.only_builder),
            "pools": [pool.to_json() for pool in self.pools],
        }


@dataclass(frozen=True, slots=True)
class LogOnly:
    """A name of the log that is no layer of ours.

    ``into`` is our layer that took it in, empty where nobody knows; ``absorbed`` says that it is
    a constant or shuffle which the builder's own fusions remove.
    """

    name: str
    kind: str
    into: str
    absorbed: bool
    words: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {
            "name": self.name,
            "kind": self.kind or None,
            "into": self.into or None,
            "words": list(self.words),
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """Prediction and builder side by side.

    Attributes:
        evidence: What the log proves (see BuildLog.evidence).
        tensorrt: The log's release, empty where unknown.
        layers: Every layer of ours, in graph order.
        loadables: Every subgraph of either side.
        absorbed: Constants and shuffles of the importer that are no layers after fusion.
        only_builder: Other names of the log that are no layers of ours.
        warnings: Why the two may not be comparable.
    """

    evidence: str
    tensorrt: str
    layers: tuple[LayerComparison, ...]
    loadables: tuple[LoadableComparison, ...]
    absorbed: tuple[LogOnly, ...]
    only_builder: tuple[LogOnly, ...]
    warnings: tuple[str, ...]
    counts: Mapping[str, int]

    @property
    def disagreements(self) -> tuple[LayerComparison, ...]:
        """Layers on which one side says that the DLA can, the other that it cannot."""
        return tuple(layer for layer in self.layers if layer.status == "disagree")

    def to_json(self) -> dict[str, Any]:
        """Returns the ``edgekit.compare-log/1`` document."""
        return {
            "schema": SCHEMA,
            "evidence": self.evidence,
            "tensorrt": self.tensorrt or None,
            "counts": dict(self.counts),
            "warnings": list(self.warnings),
            "layers": [layer.to_json() for layer in self.layers],
            "loadables": [loadable.to_json() for loadable in self.loadables],
            "absorbed": [folded.to_json() for folded in self.absorbed],
            "only_builder": [folded.to_json() for folded in self.only_builder],
        }


def pools(predicted: MemoryNeed, builder: MemoryNeed) -> tuple[PoolComparison, ...]:
    """Compares the three pools; sizes of the builder are powers of two."""
    found = []
    for pool, ours in predicted.to_json().items():
        theirs = builder.to_json()[pool]
        powers = max(ours, 1).bit_length() - max(theirs, 1).bit_length()
        found.append(PoolComparison(pool, ours, theirs, powers))
    return tuple(found)
