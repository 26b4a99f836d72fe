"""The builder settings of a configuration besides its features (`trt/settings.yaml`), and their
support by release, board and build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from edgekit.errors import Problem
from edgekit.knowledge import data_folder, read_facts
from edgekit.targets.board import Target
from edgekit.tensorrt.releases import TensorRTRelease, sources
from edgekit_device.build.settings import Setting
from edgekit_device.errors import listed
from edgekit_device.protocol.codec import document
from edgekit_device.versions import parse_version

#: A key's value: a switch, a number, a choice, several choices, or a switch for each.
SettingValue = bool | int | str | list[str] | Mapping[str, bool]
_SECTION = "build"
#: A key of this kind is a feature, handled by ``decide``.
FEATURE = "feature"
_NOT_SET: tuple[SettingValue | None, ...] = (None, False, "none")


@document(frozen=True)
class SettingRow:
    """A key of the section ``build`` and its name in TensorRT.

    Attributes:
        kind: "feature", "flag", "number", "choice", "sources", "switches" or "pool".
        name: The name in TensorRT's API that a release must have; a feature's name in
            ``trt/features.yaml``.
        what: Its effect in words; for features see ``trt/features.yaml``.
        members: The enum of its values.
        unit: Bytes of 1 in the file; 0 if the number is not in bytes.
        lacking: "refused" or "dropped" if it is not available.
        typing: The typing that it needs.
        precision: The precisions that it is for.
        compute_capability: The GPU's smallest compute capability.
        gpu: True if it excludes a DLA.
        needs: Another key that must be set.
        why: Why that key is needed.
        types: Types of a network that need the flag.
        engines: The kinds of engines that get it; empty for all.
        guide: The section of NVIDIA's guide.
        source: Keys of sources.
    """

    kind: str
    name: str
    source: tuple[str, ...]
    what: str = ""
    members: str = ""
    unit: int = 0
    lacking: str = "dropped"
    typing: str = ""
    precision: tuple[str, ...] = ()
    compute_capability: str = ""
    gpu: bool = False
    needs: str = ""
    why: str = ""
    types: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    guide: str = ""

    @property
    def reason(self) -> str:
        """The reason of its limits, with the sources."""
        return f"{self.why} ({listed(sources(self.source), most=9)})"


@document(frozen=True)
class SettingFacts:
    """``trt/settings.yaml``: the rows by key, in the order in which they are set."""

    settings: Mapping[str, SettingRow]


@cache
def setting_rows() -> Mapping[str, SettingRow]:
    """Returns the rows of ``trt/settings.yaml`` by key."""
    path = data_folder("trt") / "settings.yaml"
    return read_facts(SettingFacts, path, "edgekit.tensorrt-settings/1").settings


@dataclass(frozen=True, kw_only=True)
class SettingsCase:
    """The build that settings are checked against.

    Attributes:
        on: The release that builds.
        target: The board.
        typing: "weak" or "strong".
        precision: The plan's lowest precision.
        dla: True if the plan uses a DLA.
        kinds: The kinds of engines that are built: "plan", "loadable".
        places: File and line of each key ("build.sparsity" -> "net.yaml:12:3").
    """

    on: TensorRTRelease
    target: Target
    typing: str
    precision: str
    dla: bool
    kinds: tuple[str, ...]
    places: Mapping[str, str]


class Dropped(NamedTuple):
    """A key of the section ``build`` without effect, or without its full effect, and why."""

    key: str
    why: str


@dataclass(frozen=True)
class ChosenSettings:
    """The settings of the builder.

    Attributes:
        by_kind: Settings in the order in which they are set, by kind of engine.
        dropped: Dropped keys with reasons.
        problems: Keys that are refused.
    """

    by_kind: Mapping[str, tuple[Setting, ...]]
    dropped: tuple[Dropped, ...] = ()
    problems: tuple[Problem, ...] = ()


def choose_settings(values: Mapping[str, SettingValue], case: SettingsCase) -> ChosenSettings:
    """Returns the settings that a build makes for the values of the section ``build``.

    Args:
        values: Values by key; a missing key keeps TensorRT's default.
        case: The build that they are checked against.
    """
    by_kind: dict[str, list[Setting]] = {kind: [] for kind in case.kinds}
    dropped: list[Dropped] = []
    problems: list[Problem] = []
    for key, row in setting_rows().items():
        value = values.get(key)
        if value is None or row.kind == FEATURE:
            continue
        kinds = [kind for kind in case.kinds if not row.engines or kind in row.engines]
        if row.typing and row.typing != case.typing:
            # the flags of a weakly typed network do not concern a strongly typed network
            why = f"the network is {case.typing}ly typed, so the types in the file count"
            dropped.append(Dropped(key, f"{_SECTION}.{key} is not used: {why}"))
            continue
        why, hint = _why_unavailable(key, row, value, values, case)
        if not why and not kinds:
            why, hint = f"it does not apply to a {listed(case.kinds)}", "remove it"
        if why and row.lacking == "refused":
            place = f"{_SECTION}.{key}"
            problems.append(
                Problem(f"{row.name} ({place}): {why}", case.places.get(place, place), hint)
            )
            continue
        if why:
            dropped.append(Dropped(key, f"{_SECTION}.{key} is not used: {why}"))
            continue
        wanted = [*_settings(key, row, value, case.on, dropped)]
        for kind in kinds:
            by_kind[kind] += wanted
    return ChosenSettings(
        {kind: tuple(found) for kind, found in by_kind.items()}, tuple(dropped), tuple(problems)
    )


def _why_unavailable(
    key: str,
    row: SettingRow,
    value: SettingValue,
    values: Mapping[str, SettingValue],
    case: SettingsCase,
) -> tuple[str, str]:
    """Returns why a setting is not available, and the remedy; empty if it is available."""
    on = case.on
    names = [row.name]
    if row.kind == "choice":
        names.append(f"{row.members}.{str(value).upper()}")
    missing = next((name for name in names if not on.has(name)), "")
    if missing:
        since = on.since(missing)
        older = bool(since) and on.version < parse_version(since)
        first = f"; {since} is the first release that has it" if older else ""
        return f"TensorRT {on.text} does not have {missing}{first}", f"remove build.{key}"
    if lack := case.target.lacking_capability(row.compute_capability):
        return f"{lack}: {row.reason}", f"remove build.{key}"
    if row.gpu and case.dla:
        return f"the build uses a DLA: {row.reason}", (
            "keep everything on the GPU (placement.dla_cores: []), or remove it"
        )
    # in a strongly typed FP32 plan the file's types count
    own = case.typing == "strong" and case.precision == "fp32"
    if row.precision and case.precision not in row.precision and not own:
        return f"the precision is {case.precision}: {row.reason}", (
            f"precision: {' or '.join(row.precision)}, or remove it"
        )
    if row.needs and values.get(row.needs) in _NOT_SET:
        return f"build.{row.needs} is not set: {row.why}", f"set build.{row.needs}, or remove it"
    return "", ""


def _settings(
    key: str, row: SettingRow, value: SettingValue, on: TensorRTRelease, dropped: list[Dropped]
) -> Iterator[Setting]:
    """Yields a key's settings; members that the release lacks are added to ``dropped``."""
    api = row.name.rpartition(".")[2]
    if isinstance(value, Mapping):
        for name in _available_members(key, row, [*value], on, dropped):
            yield Setting(key, row.kind, api, row.members, (name,), int(value[name]))
    elif isinstance(value, list):
        had = _available_members(key, row, value, on, dropped)
        if had or not value:
            yield Setting(key, row.kind, api, row.members, tuple(had))
    elif isinstance(value, str):
        yield Setting(key, row.kind, api, row.members, (value.upper(),))
    else:
        yield Setting(key, row.kind, api, number=int(value) * (row.unit or 1))


def _available_members(
    key: str, row: SettingRow, names: list[str], on: TensorRTRelease, dropped: list[Dropped]
) -> list[str]:
    """Returns the members that the release has."""
    had = [name for name in names if on.has(f"{row.members}.{name}")]
    if lacks := [name for name in names if name not in had]:
        why = (
            f"{_SECTION}.{key}: {listed(lacks)} {'is' if len(lacks) == 1 else 'are'} not used: "
            f"TensorRT {on.text} does not have {'it' if len(lacks) == 1 else 'them'}"
        )
        dropped.append(Dropped(key, why))
    return had
