"""Changes to a configuration in the user's words (`edgekit plan --what-if`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edgekit.config.loader import Config
from edgekit.errors import UsageError
from edgekit.text import read_size

_FORMS = {
    "pin": "pin GLOB DEVICE",
    "unpin": "unpin GLOB",
    "bound": "bound latency_us 2000",
    "mode": "mode 30W",
    "objective": "objective energy",
    "rate": "rate 10",
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
    "max_loadables": "max_loadables",
    "max_transitions": "max_transitions",
    "min_loadable": "min_loadable_layers",
}


@dataclass
class ChangedPlacement:
    """Keys of the configuration's "placement" that changes set; None is unchanged."""

    objective: str | None = None
    rate_hz: float | None = None
    dla_cores: list[int] | None = None
    gpu: bool | None = None
    max_loadables: int | None = None
    max_transitions: int | None = None
    min_loadable_layers: int | None = None
    bounds: dict[str, float] = field(default_factory=dict)
    pools: dict[str, int] = field(default_factory=dict)
    pin: list[dict[str, str]] | None = None


@dataclass
class Changes:
    """Changes in the user's words, and the configuration's keys that they set."""

    texts: tuple[str, ...]
    placement: ChangedPlacement = field(default_factory=ChangedPlacement)
    target: str | None = None
    power_mode: str | None = None
    precision: str | None = None

    def options(self) -> dict[str, Any]:
        """Returns the changes as options of a configuration."""
        return {
            "target": self.target,
            "power_mode": self.power_mode,
            "precision": self.precision,
            "placement": self.placement,
        }


def read_changes(text: str, config: Config) -> Changes:
    """Reads changes that semicolons separate, such as "pin conv* GPU; mode 30W".

    Raises:
        UsageError: "plan.what-if": an unknown change, with the expected form.
    """
    parts = [" ".join(part.split()) for part in text.split(";")]
    changes = Changes(tuple(part for part in parts if part))
    if not changes.texts:
        raise UsageError("--what-if changes nothing", code="plan.what-if", hint=_known_changes())
    before = [pin.model_dump() for pin in config.file.placement.pin]
    for change in changes.texts:
        word, _, rest = change.partition(" ")
        if word not in _FORMS:
            raise UsageError(
                f"{change!r} is not a valid change", code="plan.what-if", hint=_known_changes()
            )
        try:
            _read_change(changes, word, rest, before)
        except ValueError:
            raise UsageError(
                f"{change!r} is not a valid change",
                code="plan.what-if",
                hint=f"as in {_FORMS[word]}",
            ) from None
    return changes


def _read_change(changes: Changes, word: str, rest: str, before: list[dict[str, str]]) -> None:
    """Adds a change to others; ``before`` are the configuration's pins.

    Raises:
        ValueError: The change has another form.
        UsageError: "plan.what-if": there is no such pin.
    """
    placement = changes.placement
    first, _, last = rest.rpartition(" ")
    if not rest or (word == "pin" and not first) or (word == "gpu" and rest not in ("yes", "no")):
        raise ValueError(rest)
    if word in ("pin", "unpin"):
        # the option replaces the file's whole list, so it begins with the file's pins
        pins = before if placement.pin is None else placement.pin
        added = [*pins, {"layers": first, "device": last}]
        placement.pin = added if word == "pin" else _without_pin(pins, rest)
    elif word == "mode":
        changes.power_mode = rest
    elif word in ("precision", "target"):
        setattr(changes, word, rest)
    elif word == "gpu":
        placement.gpu = rest == "yes"
    elif word == "objective":
        placement.objective = rest
    elif word == "rate":
        placement.rate_hz = float(rest)
    elif word == "cores":
        placement.dla_cores = [] if rest == "none" else [int(core) for core in rest.split(",")]
    elif word in _NUMBERS:
        setattr(placement, _NUMBERS[word], int(rest))
    else:
        name, _, value = rest.partition(" ")
        if word == "bound":
            placement.bounds[name] = float(value)
        else:
            placement.pools[name] = read_size(value)


def _without_pin(pins: list[dict[str, str]], layers: str) -> list[dict[str, str]]:
    remaining = [pin for pin in pins if pin["layers"] != layers]
    if len(remaining) == len(pins):
        written = ", ".join(pin["layers"] for pin in pins) or "there are none"
        raise UsageError(
            f"there is no pin {layers!r}", code="plan.what-if", hint=f"pins: {written}"
        )
    return remaining


def _known_changes() -> str:
    return "changes are: " + ", ".join(_FORMS.values())
