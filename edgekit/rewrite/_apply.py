"""Rewrites a model: what helps, proved, and taken back where it led nowhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edgekit.rewrite._chosen import chosen
from edgekit.rewrite._collector import collector_held
from edgekit.rewrite._decide import Judge
from edgekit.rewrite._entry import entry_of
from edgekit.rewrite._graph import Graph
from edgekit.rewrite._prove import SEED
from edgekit.rewrite._raised import RAISED, holds, raised_entry
from edgekit.rewrite._record import with_record
from edgekit.rewrite._search import Search
from edgekit.rewrite._settle import settle
from edgekit.rewrite._types import Applied

if TYPE_CHECKING:
    from edgekit.network import Model
    from edgekit.rewrite._decide import Cost
    from edgekit.targets import Target

__all__ = ["rewrite"]


@collector_held()
def rewrite(
    model: Model,
    target: Target,
    *,
    precision: str,
    tensorrt: str | None = None,
    enable: str | Sequence[str] = "all",
    disable: Sequence[str] = (),
    allow_approx: Sequence[str] = (),
    cost: Cost | None = None,
    lowers: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[Model, tuple[Applied, ...], tuple[str, ...]]:
    """Applies every enabled rewrite that brings more of a network to the DLA.

    Steps are tried to a fixed point, each one judged on the board's rules and proved on random
    inputs. Steps that hang together are kept if together they leave fewer layers off the DLA (or
    as many, fewer of them disputed; or as many of both, in less predicted time).

    Args:
        model: The network.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release on the board; the target's usual one when None.
        enable: "all", "none" or names. Raising the opset, without which an older model cannot
            be rewritten, need not be among them.
        disable: Names to leave out.
        allow_approx: Names of approximate rewrites to apply as well.
        cost: Predicts microseconds of a judged network; what raises them is taken back.
        lowers: Whether the network gets Q/DQ nodes before it is built (see ``dla.judge``).
        progress: Called with the number of steps so far.

    Returns:
        The rewritten model (the same object when nothing helped), what was applied, and notes on
        rewrites whose proof failed.

    Raises:
        UsageError: An unknown name.
    """
    items = chosen(enable, disable, allow_approx)
    if target.dla.cores == 0 or not (items or RAISED in enable):
        return model, (), ()
    from edgekit.rewrite._raise_opset import obstacle, raise_opset

    raised = raise_opset(model)
    if raised is None or (raised is not model and RAISED in disable):
        why = f"{RAISED} is disabled" if raised else f"{obstacle(model)} cannot be raised to it"
        return model, (), (f"nothing was rewritten: rewrites need opset 13, and {why}",)
    entry = raised_entry(model, raised) if raised is not model else None
    if entry is not None and not holds(entry):
        note = f"{RAISED} differs (seed {SEED}) and nothing was rewritten: please report it"
        return model, (), (note,)
    judge = Judge(target, precision, tensorrt, cost, lowers=lowers)
    search = Search(Graph(raised), items, judge, progress=progress)
    search.run()
    settled = settle(model, raised, judge, search)
    if settled is None:
        return model, (), tuple(search.notes)
    applied = tuple(entry_of(i.step, i.proof) for i in settled.taken if i.proof is not None)
    if entry is not None and (entry.nodes or not applied):
        applied = (entry, *applied)
    kept = with_record(settled.model, settled.graph, applied, original=model)
    return kept, applied, tuple(search.notes)
