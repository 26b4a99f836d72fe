"""Why a wish cannot be: what a release lacks for it, and what does not go together."""

from __future__ import annotations

from edgekit.dla import drives_dla
from edgekit.errors import Problem
from edgekit.trt._asked import Asked
from edgekit.trt._features import features, limits, rows_for
from edgekit.trt._releases import Release
from edgekit.trt._types import Wish

__all__ = ["lacking", "nameless", "unfit"]

_MODE = "build.mode"
_IDENTICAL = "build.refit: identical"
_LEFT_OUT = {"STRIP_PLAN": "build.strip: auto, which keeps the weights in the plan"}
_INSTEAD = {
    "VC": "auto drops it with a note",
    "STRIP_PLAN": "auto drops it with a note",
    "EXCLUDE_LEAN": "leave build.lean out",
    "HW_COMPAT": "leave it out: every board builds its own engines",
    "REFIT": _IDENTICAL,
    "REFIT_INDIVIDUAL": "build.refit: any, or identical",
    "INT8_CALIB": "this release wants Q/DQ nodes: edgekit calibrate to-qdq makes them",
    "QDQ": "edgekit calibrate from-qdq makes a plain model and a calibration cache of it",
    "DYNAMIC_SHAPES": "give every input one shape, or keep the network on the GPU: "
    "placement.dla_cores: []",
    "PLUGINS": "build.mode: hybrid, where the GPU takes them",
}


def lacking(wish: Wish, on: Release) -> list[Problem]:
    """Returns what a release does not have at all: a DLA of this board, or the kind of typing."""
    from edgekit.targets import get

    target = get(wish.target)
    if (wish.dla or wish.mode == "standalone") and not drives_dla(target, wish.tensorrt):
        part = target.facts.get("dla")
        ranges = part.get("tensorrt", ()) if isinstance(part, dict) else ()
        known = ", ".join(
            f"{r['since']} up to (not with) {r['until']}" if "until" in r else f"{r['since']} on"
            for r in ranges
        )
        return [
            _problem(
                wish, "tensorrt", f"TensorRT {on.text} does not drive the DLA of this board",
                f"releases that do: {known}; or keep everything on the GPU: "
                "placement.dla_cores: []"
                if known
                else "this board has no DLA that TensorRT drives: placement.dla_cores: []",
            )
        ]  # fmt: skip
    if wish.typing != "auto" and wish.typing not in on.typings:
        return [
            _problem(
                wish, "tensorrt", f"TensorRT {on.text} builds no {wish.typing}ly typed networks",
                f"it builds {' and '.join(f'{t}ly' for t in on.typings)} typed ones",
            )
        ]  # fmt: skip
    return []


def nameless(wish: Wish, name: str) -> str:
    """Returns why a feature cannot be had by trtexec alone; empty where it can.

    A refit needs the names of the weights that the plan takes. The builder makes some of them up,
    and only ``Refitter.get_all_weights`` of TensorRT's Python module tells which.
    """
    if wish.bindings or name not in ("STRIP_PLAN", "REFIT", "REFIT_INDIVIDUAL"):
        return ""
    return (
        "the board has trtexec alone, and only TensorRT's Python module says which weights a plan "
        "takes"
    )


def unfit(wish: Wish, on: Release, own: Asked) -> list[Problem]:
    """Returns what of the firm features of one kind of engine cannot be."""
    known, found = features(), []
    told: set[str] = set()  # what cannot be at all needs no second reason
    for name in own.firm:
        if not known[name].on(on):
            told.add(name)
            since = on.since(known[name].flag)
            first = f"; {since} is the first that has" if since else ""
            found.append(
                _problem(
                    wish, known[name].key or _MODE,
                    f"TensorRT {on.text} does not have {name}, {known[name].what}{first}",
                    _INSTEAD.get(name, ""),
                )
            )  # fmt: skip
        elif reason := nameless(wish, name):
            told.add(name)
            or_else = _LEFT_OUT.get(name, _IDENTICAL)
            found.append(
                _problem(
                    wish, known[name].key, f"{name}, {known[name].what}: {reason}",
                    f"install python3-libnvinfer on the board, or {or_else}",
                )
            )  # fmt: skip
    for row in sorted(rows_for(own.firm, on, wish.target), key=lambda row: len(row.of)):
        if told & set(row.of):
            continue
        if row.status == "required" and row.of[1] not in own.firm:
            second = known[row.of[1]]
            if second.builder_flag and second.on(on):
                continue  # it is simply set
            message = f"{_named(wish, row.of[0])} needs {row.of[1]}, {second.what}: {row.reason}"
        elif row.status in ("forbidden", "not_applicable"):
            verb = "do not go together" if len(row.of) > 1 else "cannot be had here"
            told |= set(row.of[:1]) if len(row.of) == 1 else set()
            names = " and ".join(_named(wish, name) for name in row.of)
            message = f"{names} {verb}: {row.reason}"
        else:
            continue
        hint = next((_INSTEAD[name] for name in reversed(row.of) if name in _INSTEAD), "")
        found.append(_problem(wish, _blamed(wish, own, row.of), message, hint))
    for limit in limits(own.firm):
        if wish.profiles > limit["profiles"]:
            found.append(
                _problem(
                    wish, known[limit["feature"]].key,
                    f"{limit['feature']} takes {limit['profiles']} optimisation profile, and there "
                    f"are {wish.profiles}: {limit['why']}",
                    "build one profile, or leave build.strip and build.refit out",
                )
            )  # fmt: skip
    return found


def _blamed(wish: Wish, own: Asked, names: tuple[str, ...]) -> str:
    """Returns the key to change: of those that stand in the file, the one most freely chosen."""
    keys = [features()[name].key or _MODE for name in own.firm if name in names]
    written = [key for key in keys if key in wish.places]
    return (written or keys)[-1]


def _named(wish: Wish, name: str) -> str:
    """Names a feature by its key and the key's line, as far as they are known."""
    key = features()[name].key
    if not key:
        return name
    parts = wish.places.get(key, "").rsplit(":", 2)
    return f"{name} ({key}, line {parts[1]})" if len(parts) == 3 else f"{name} ({key})"


def _problem(wish: Wish, key: str, message: str, hint: str) -> Problem:
    return Problem(message, wish.places.get(key, key), hint)
