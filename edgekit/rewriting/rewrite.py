"""Rewrites a model: applies helpful rewrites, proves them, and takes back useless steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from edgekit.collector import collector_held
from edgekit.dla.verdicts import Judgement
from edgekit.errors import UsageError
from edgekit.network.model import Model, Network
from edgekit.rewriting.engine.acceptance import settle
from edgekit.rewriting.engine.opset import (
    RAISED,
    find_obstacle,
    prove_raising,
    raise_opset,
    raising_holds,
)
from edgekit.rewriting.engine.replay import make_entry
from edgekit.rewriting.engine.scoring import Cost, Judge
from edgekit.rewriting.engine.search import RewriteSearch
from edgekit.rewriting.graph import Applied, Rewrite, RewriteGraph
from edgekit.rewriting.proof.prove import SEED
from edgekit.rewriting.provenance.record import with_record
from edgekit.rewriting.rules.order import REMOVED, REWRITES

if TYPE_CHECKING:
    from edgekit.targets.board import Target


def choose_rewrites(
    enable: str | Sequence[str], disable: Sequence[str], allow_approx: Sequence[str]
) -> list[Rewrite]:
    """Returns the rewrites to try, without raising the opset (which may be named).

    Raises:
        UsageError: "rewrite.unknown".
    """
    exact = [item.name for item in REWRITES if not item.approximate]
    approximate = [item.name for item in REWRITES if item.approximate]
    listed = [] if isinstance(enable, str) else list(enable)
    # an approximate name has its own message: it exists, but another option allows it
    for name in listed:
        if name in approximate:
            raise UsageError(
                f"rewrite '{name}' changes results",
                code="rewrite.unknown",
                where="rewrite.enable",
                hint=f"allow it with --allow-approx {name} (rewrite.allow_approx)",
            )
    for key, names in (("enable", listed), ("disable", disable)):
        for name in names:
            if name not in (*exact, *approximate, RAISED):
                raise _unknown_rewrite("rewrite", name, exact, key)
    for name in allow_approx:
        if name not in approximate:
            raise _unknown_rewrite("approximate rewrite", name, approximate, "allow_approx")
    wanted = {*(exact if enable == "all" else listed), *allow_approx} - set(disable)
    return [item for item in REWRITES if item.name in wanted]


def _unknown_rewrite(what: str, name: str, known: Sequence[str], key: str) -> UsageError:
    if name in REMOVED:
        return UsageError(
            f"edgekit has no {what} '{name}' any more: it applied in no network that people use",
            code="rewrite.unknown",
            where=f"rewrite.{key}",
            hint=f"remove '{name}'; edgekit explain OPERATOR has the steps by hand",
        )
    near = get_close_matches(name, known, n=1)
    return UsageError(
        f"unknown {what} '{name}'",
        code="rewrite.unknown",
        where=f"rewrite.{key}",
        hint=f"did you mean '{near[0]}'?" if near else "list all rewrites: edgekit rewrite --list",
    )


class Rewritten(NamedTuple):
    """Result of rewriting a model.

    Attributes:
        model: The rewritten model; the same object if no rewrite helped.
        applied: The applied rewrites.
        notes: Notes on rewrites whose proof failed.
        network: The rewritten model's layers; None if no rewrite helped.
        judgement: The layers' verdicts by the board's rules, as if every tensor had a scale.
    """

    model: Model
    applied: tuple[Applied, ...]
    notes: tuple[str, ...]
    network: Network | None = None
    judgement: Judgement | None = None


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
) -> Rewritten:
    """Applies every enabled rewrite that brings more of a network to the DLA.

    Steps are tried to a fixed point; each is judged by the board's rules and proved on random
    inputs. Connected steps are kept if together they leave fewer layers off the DLA (or as many
    with fewer disputed layers; or as many of both, in less predicted time).

    Args:
        model: The network.
        target: The board.
        precision: "int8", "fp16" or "fp32".
        tensorrt: TensorRT release on the board; None for the target's default release.
        enable: "all", "none" or names. Raising the opset, without which an older model cannot
            be rewritten, need not be among them.
        disable: Names to leave out.
        allow_approx: Names of approximate rewrites to apply as well.
        cost: Predicts a judged network's time, in microseconds; steps that raise it are taken back.
        lowers: True if the network gets Q/DQ nodes before the build (see ``dla.judge``).
        progress: Called with the number of steps so far.

    Raises:
        UsageError: An unknown name.
    """
    items = choose_rewrites(enable, disable, allow_approx)
    # every rewrite aims at the DLA's rules, so a board without a DLA has no use for any
    if target.dla.cores == 0 or not (items or RAISED in enable):
        return Rewritten(model, (), ())
    raised = raise_opset(model)
    if raised is None or (raised is not model and RAISED in disable):
        why = (
            f"{RAISED} is disabled"
            if raised
            else f"{find_obstacle(model)} cannot be converted to it"
        )
        note = f"nothing was rewritten: rewrites need opset 13, and {why}"
        return Rewritten(model, (), (note,))
    # all later proofs compare with the raised model, so raising has its own proof against the
    # source
    entry = prove_raising(model, raised) if raised is not model else None
    if entry is not None and not raising_holds(entry):
        note = (
            f"nothing was rewritten, because {RAISED} changes the results (seed {SEED}); please "
            "report this"
        )
        return Rewritten(model, (), (note,))
    judge = Judge(target, precision, tensorrt, cost, lowers=lowers)
    search = RewriteSearch(RewriteGraph(raised), items, judge, progress=progress)
    search.run()
    settled = settle(model, raised, judge, search)
    if settled is None:
        return Rewritten(model, (), tuple(search.notes))
    # a search for a rewriting proves each step; only ``offers`` searches without proofs
    applied = tuple(make_entry(i.step, i.proof) for i in settled.taken if i.proof is not None)
    # without changed nodes the entry matters only if nothing else changed the model
    if entry is not None and (entry.nodes or not applied):
        applied = (entry, *applied)
    judged = settled.judged
    # the record names weights of the model that was given, not of the raised copy
    recorded = with_record(judged.model, settled.graph, applied, original=model)
    return Rewritten(recorded, applied, tuple(search.notes), judged.network, judged.judgement)
