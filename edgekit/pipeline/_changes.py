"""``--what-if`` in words: what is to be changed about a configuration."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.config import Config

__all__ = ["Changes", "read_changes", "read_size"]

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_FORMS = {
    "pin": "pin GLOB DEVICE",
    "unpin": "unpin GLOB",
    "bound": "bound latency_us 2000",
    "mode": "mode 30W",
    "objective": "objective energy",
    "cores": "cores none",
    "gpu": "gpu no",
    "max_loadables": "max_loadables 4",
    "max_transitions": "max_transitions 2",
    "min_loadable": "min_loadable 3",
    "pool": "pool global_dram 64MiB",
    "precision": "precision fp16",
    "target": "target BOARD",
}
_NUMBERS = {
    "max_loadables": "max_loadables", "max_transitions": "max_transitions",
    "min_loadable": "min_loadable_layers",
}  # fmt: skip


@dataclass(frozen=True)
class Changes:
    """Changes in the user's words, and the configuration's keys that make them."""

    told: tuple[str, ...]
    keys: Mapping[str, Any]


def read_changes(text: str, config: Config) -> Changes:
    """Reads changes that semicolons separate, such as "pin conv* GPU; mode 30W".

    Raises:
        UsageError: "plan.what-if": a change that is none, with the form that it should have.
    """
    parts = [" ".join(part.split()) for part in text.split(";")]
    told = tuple(part for part in parts if part)
    if not told:
        raise UsageError("--what-if changes nothing", code="plan.what-if", hint=_known())
    keys: dict[str, Any] = {}
    section = config.file.placement
    pins = [pin.model_dump() for pin in section.pin]
    for change in told:
        word, _, rest = change.partition(" ")
        if word not in _FORMS:
            near = difflib.get_close_matches(word, _FORMS, 1)
            hint = f"did you mean '{_FORMS[near[0]]}'?" if near else _known()
            raise UsageError(f"{change!r} is no change", code="plan.what-if", hint=hint)
        if word == "pin":
            glob, _, device = rest.rpartition(" ")
            if not glob:
                raise _malformed(change, word)
            pins.append({"layers": glob, "device": device})
        elif word == "unpin":
            kept = [pin for pin in pins if pin["layers"] != rest]
            if len(kept) == len(pins):
                written = ", ".join(pin["layers"] for pin in pins) or "there are none"
                raise UsageError(
                    f"no pin is {rest!r}", code="plan.what-if", hint=f"pins: {written}"
                )
            pins = kept
        else:
            _merge(keys, _read(change, word, rest))
    if any(change.partition(" ")[0] in ("pin", "unpin") for change in told):
        _merge(keys, {"placement": {"pin": pins}})
    return Changes(told, keys)


def _read(change: str, word: str, rest: str) -> dict[str, Any]:
    if not rest:
        raise _malformed(change, word)
    if word == "mode":
        return {"power_mode": rest}
    if word in ("precision", "target"):
        return {word: rest}
    if word == "objective":
        return {"placement": {"objective": rest}}
    if word == "gpu":
        if rest not in ("yes", "no"):
            raise _malformed(change, word)
        mode = {"build": {"mode": "standalone"}} if rest == "no" else {}
        return {"placement": {"gpu": rest == "yes"}, **mode}
    try:
        if word == "cores":
            cores = [] if rest == "none" else [int(core) for core in rest.split(",")]
            return {"placement": {"dla_cores": cores}}
        if word in _NUMBERS:
            return {"placement": {_NUMBERS[word]: int(rest)}}
        name, _, value = rest.partition(" ")
        if word == "bound":
            return {"placement": {"bounds": {name: float(value)}}}
    except ValueError:
        raise _malformed(change, word) from None
    return {"placement": {"pools": {name: read_size(value)}}}


def read_size(text: str) -> int:
    """Returns bytes of "64MiB", "4096" or "1 GiB".

    Raises:
        UsageError: It is none of these.
    """
    number = text.strip().lower().rstrip("bikmg ")
    unit = text.strip().lower()[len(number) :].strip()
    try:
        size = float(number) * _UNITS[unit]
        if not size.is_integer():
            raise ValueError
    except (ValueError, KeyError, OverflowError):
        raise UsageError(f"{text!r} is no size", hint="64MiB, 512KiB or bytes") from None
    return int(size)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _malformed(change: str, word: str) -> UsageError:
    return UsageError(f"{change!r} is no change", code="plan.what-if", hint=f"as in {_FORMS[word]}")


def _known() -> str:
    return "as in " + "; ".join(_FORMS.values())
