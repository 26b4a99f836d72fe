"""Applies rewrites to a fixed point: only where the verdict improves, only when proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.rewrite._all import rewrites
from edgekit.rewrite._prove import RUNS, SEED, TOLERANCE, prove
from edgekit.rewrite._types import Applied, Match, Rewrite

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.targets import Target

__all__ = ["rewrite"]


def rewrite(
    model: Model,
    target: Target,
    *,
    precision: str,
    tensorrt: str | None = None,
    enable: str | Sequence[str] = "all",
    disable: Sequence[str] = (),
    allow_approx: Sequence[str] = (),
) -> tuple[Model, tuple[Applied, ...], tuple[str, ...]]:
    """Applies every enabled rewrite that puts more layers on the DLA.

    Args:
        model: The network.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release on the board; the target's usual one when None.
        enable: "all", "none" or names.
        disable: Names to leave out.
        allow_approx: Names of approximate rewrites to apply as well; there are none yet, so any
            name is unknown.

    Returns:
        The rewritten model (the same object when nothing applied), what was applied, and notes on
        rewrites whose proof failed.

    Raises:
        UsageError: An unknown name in ``enable`` or ``disable``.
    """
    chosen = _chosen(enable, disable)
    for name in allow_approx:
        raise UsageError(
            f"unknown approximate rewrite '{name}'",
            code="rewrite.unknown",
            hint="there are none in this release; exact ones are chosen with rewrite.enable",
        )
    applied: list[Applied] = []
    notes: list[str] = []
    if target.dla.cores == 0:
        return model, (), ()
    for item in chosen:
        refused: set[Match] = set()
        # each replacement may open the way for the next, so matches are looked up again
        while matches := [m for m in item.match(model) if m not in refused]:
            before = _on_dla(model, target, precision, tensorrt)
            candidate = _replace(model, item, matches[0])
            if _on_dla(candidate, target, precision, tensorrt) <= before:
                refused.add(matches[0])
                continue
            error = prove(model, candidate, matches[0])
            if error > TOLERANCE:
                refused.add(matches[0])
                notes.append(
                    f"rewrite {item.name} at {matches[0].nodes[0]} differs by {error:.1e} of the "
                    f"maximum (seed {SEED}) and was left out: please report it"
                )
                continue
            applied.append(Applied(item.name, item.reason, matches[0].nodes, error, RUNS, SEED))
            model = candidate
    return model, tuple(applied), tuple(notes)


def _chosen(enable: str | Sequence[str], disable: Sequence[str]) -> list[Rewrite]:
    names = [item.name for item in rewrites()]
    listed = [] if isinstance(enable, str) else list(enable)
    for name in [*listed, *disable]:
        if name not in names:
            from difflib import get_close_matches

            near = get_close_matches(name, names, n=1)
            raise UsageError(
                f"unknown rewrite '{name}'",
                code="rewrite.unknown",
                hint=f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}",
            )
    wanted = names if enable == "all" else listed
    return [item for item in rewrites() if item.name in wanted and item.name not in disable]


def _replace(model: Model, item: Rewrite, match: Match) -> Model:
    import onnx

    from edgekit.network import canonical

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    place = next(i for i, node in enumerate(proto.graph.node) if node.name == match.nodes[0])
    kept = [node for node in proto.graph.node if node.name not in match.nodes]
    kept[place:place] = item.replace(model, match)
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    return canonical(proto, None, source=model.source, weights=model.weights)


def _on_dla(model: Model, target: Target, precision: str, tensorrt: str | None) -> int:
    from edgekit.dla import judge
    from edgekit.network import layers

    judged = judge(layers(model), target, precision=precision, tensorrt=tensorrt)
    return sum(place == "DLA" for place in judged.placed.values())
