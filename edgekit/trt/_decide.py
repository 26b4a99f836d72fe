"""What a build on one release does with a wish: flags, fall-backs, notes, or why it cannot be."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

from edgekit.errors import ConfigError
from edgekit.trt._asked import Asked, asked
from edgekit.trt._features import Row, features, give_up, limits, rows_for
from edgekit.trt._judged import lacking, nameless, unfit
from edgekit.trt._releases import Release, release
from edgekit.trt._types import Attempt, Decision, Wish

__all__ = ["decide"]

#: What leaves a plan together with something else.
_WITH = {"EXCLUDE_LEAN": "VC", "REFIT_IDENTICAL": "STRIP_PLAN"}
_CHANGING = ("REFIT", "REFIT_INDIVIDUAL")


def decide(wish: Wish) -> Decision:
    """Decides how engines are built, before anything is.

    What the wish leaves to edgekit ("auto") is dropped with a note where the release lacks it or
    where it cannot be together with what is asked for. What it asks for is never dropped here.
    Where nobody says whether features go together, the attempts try: first with everything, then
    without what is least missed; what was asked for goes last. An attempt without all that is
    "auto" is always among them: a plan may be built and yet be of no use (a refit that fails).

    Raises:
        ConfigError: With everything in the wish that cannot be: a release that does not drive the
            board's DLA or has no such typing ("trt.release"), features that it lacks or that do
            not go together ("trt.features").
        UsageError: There is no such board, or ``tensorrt`` is no version.
    """
    on = release(wish.tensorrt)
    problems = lacking(wish, on)
    if problems:
        raise ConfigError(problems, code="trt.release")
    notes: list[str] = []
    typing = _typing(wish, on)
    kinds = {"hybrid": ("plan",), "standalone": ("loadable",), "split": ("plan", "loadable")}
    found: dict[str, tuple[Attempt, ...]] = {}
    unknown: list[tuple[str, ...]] = []
    for kind in kinds[wish.mode]:
        own = asked(wish, kind, typing)
        bad = unfit(wish, on, own)
        problems += [one for one in bad if one not in problems]
        if bad:
            continue
        kept = _kept(wish, on, own, notes)
        open_rows = [r for r in rows_for(kept, on, wish.target) if r.status == "unknown"]
        unknown += [row.of for row in open_rows if row.of not in unknown]
        found[kind] = _attempts(own, kept, open_rows)
        notes += [note for note in on.warnings(frozenset(kept)) if note not in notes]
        notes += [note for note in _said(open_rows) if note not in notes]
    if problems:
        raise ConfigError(problems, code="trt.features")
    return Decision(
        typing, found.get("plan", ()), found.get("loadable", ()), tuple(unknown), tuple(notes)
    )


def _typing(wish: Wish, on: Release) -> Literal["weak", "strong"]:
    if wish.typing != "auto":
        return wish.typing
    return "weak" if "weak" in on.typings else "strong"


def _kept(wish: Wish, on: Release, own: Asked, notes: list[str]) -> list[str]:
    """Returns the features that a build sets, what edgekit may choose as far as it fits."""
    known = features()
    kept = list(own.firm)

    def drop(name: str, why: str) -> None:
        note = f"{known[name].key} is dropped: {why}"
        if known[name].key and note not in notes:
            notes.append(note)

    for name in own.soft:
        companion = _WITH.get(name)
        if companion is not None and companion not in kept:
            continue
        if not known[name].on(on):
            first = on.since(known[name].flag)
            lack = f"TensorRT {on.text} does not have it ({known[name].what}; {first} is the first"
            if companion is None:
                drop(name, f"{lack} that has)")
            continue
        against = _against(wish, name, kept, on)
        if not against:
            kept.append(name)
        elif companion is None:
            drop(name, against)
    if wish.lean == "external" and own.kind == "plan" and "VC" not in kept:
        notes.append("build.lean has no effect: only version compatible plans have a lean runtime")
    for row in rows_for(kept, on, wish.target):
        if row.status == "required" and row.of[1] not in kept:
            kept.append(row.of[1])
        elif row.status == "ignored":
            note = f"{known[row.of[0]].what}: no effect, {row.reason}"
            notes += [note] if note not in notes else []
    return kept


def _against(wish: Wish, name: str, kept: list[str], on: Release) -> str:
    """Returns why a feature cannot be beside those that are kept; empty where it can."""
    for row in rows_for([*kept, name], on, wish.target):
        if name in row.of and row.status in ("forbidden", "not_applicable"):
            return row.reason
    if unnamed := nameless(wish, name):
        return unnamed
    over = [limit for limit in limits([name]) if wish.profiles > limit["profiles"]]
    return str(over[0]["why"]) if over else ""


def _attempts(own: Asked, kept: list[str], open_rows: list[Row]) -> tuple[Attempt, ...]:
    """Returns what to try: everything first; of the rest, whatever loses the least comes first."""
    order = give_up()
    doubtful = {name for row in open_rows for name in row.of} & set(kept)
    doubtful |= {"DIRECT_IO"} & set(own.soft) & set(kept)
    units = [name for name in order if any(own.unit(name, other) for other in doubtful)]
    tries = [lost for size in range(len(units) + 1) for lost in combinations(units, size)]
    auto = tuple(name for name in order if name in own.soft and name in kept)
    tries = list(dict.fromkeys([*tries, auto]))
    explicit = {name for name in units if any(own.unit(name, firm) for firm in own.firm)}
    tries.sort(key=lambda lost: (len(explicit & set(lost)), len(lost)))  # stable: data's order
    found: dict[tuple[str, ...], Attempt] = {}
    for lost in tries:
        left = _without(kept, set(lost))
        flags = tuple(f.builder_flag for n, f in features().items() if n in left and f.builder_flag)
        breaks = bool(explicit & set(lost))
        found.setdefault(flags, Attempt(flags, _gives_up(lost, kept, explicit), breaks))
    return tuple(found.values())


def _without(kept: list[str], lost: set[str]) -> list[str]:
    left = [name for name in kept if name not in lost and _WITH.get(name) not in lost]
    if "REFIT" in lost:
        left = [name for name in left if name not in _CHANGING]
        if "STRIP_PLAN" in left:
            left.append("REFIT_IDENTICAL")
    return left


def _gives_up(lost: tuple[str, ...], kept: list[str], explicit: set[str]) -> str:
    told = []
    for name in lost:
        lost_names = [n for n in kept if n in _CHANGING] if name == "REFIT" else [name]
        feature = features()[lost_names[0]]
        asks = f" (though {feature.key} asks for it)" if name in explicit else ""
        told.append(feature.without + asks)
    return f"without {'; without '.join(told)}" if told else ""


def _said(open_rows: list[Row]) -> list[str]:
    pairs = [" with ".join(row.of) for row in open_rows if len(row.of) == 2]
    told = ", ".join(pairs)
    return [f"nobody states whether these go together, so the build tries: {told}"] if told else []
