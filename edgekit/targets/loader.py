"""Finds and reads board files. A new board is a new file under `targets/` and needs no Python;
each wrong or missing fact is named with its place in the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from edgekit.errors import DataError, UsageError
from edgekit.knowledge import data_folder, read_knowledge
from edgekit.targets.board import (
    CONTENTION,
    GENERATIONS,
    PLATFORMS,
    Dla,
    Dram,
    PowerMode,
    PowerRails,
    Target,
    TargetGpu,
)

_NO_CAP = "max"
SCHEMA = "edgekit.target/1"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_NO_DLA = Dla(cores=0, generation="", max_mhz=0.0, int8_macs_per_clock=0, sram_bytes=0)
_KIB = 1024
_SMS_PER_TPC = 2


class BoardFileSection:
    """One mapping of a board file and where it stands."""

    def __init__(self, values: Mapping[str, Any], path: str, place: str = "") -> None:
        self._values = values
        self._path = path
        self._place = place

    def fail(self, key: str, expected: str) -> NoReturn:
        """Raises the DataError for ``key``."""
        place = f"{self._place}.{key}" if self._place else key
        found = repr(self._values[key]) if key in self._values else "nothing"
        raise DataError(
            f"{place} is {found}, expected {expected}",
            code="target.invalid",
            where=self._path,
            hint="copy the structure of another file under targets/",
        )

    def names(self) -> Iterable[str]:
        """Returns the keys in file order."""
        return [str(key) for key in self._values]

    def has(self, key: str) -> bool:
        """Says whether ``key`` is given at all."""
        return key in self._values

    def is_null(self, key: str) -> bool:
        """Says whether the fact is written down as unknown."""
        return key in self._values and self._values[key] is None

    def section(self, key: str) -> BoardFileSection:
        """Returns the mapping under ``key``."""
        value = self._values.get(key)
        if not isinstance(value, Mapping) or not value:
            self.fail(key, "a mapping")
        return BoardFileSection(value, self._path, f"{self._place}.{key}" if self._place else key)

    def text(self, key: str) -> str:
        """Returns a non-empty text."""
        value = self._values.get(key)
        if not isinstance(value, str) or not value:
            self.fail(key, "a text")
        return value

    def one_of(self, key: str, allowed: Collection[str]) -> str:
        """Returns one of certain texts."""
        value = self._values.get(key)
        if not isinstance(value, str) or value not in allowed:
            self.fail(key, f"one of {', '.join(allowed)}")
        return value

    def whole(self, key: str) -> int:
        """Returns a whole number of at least zero."""
        value = self._values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.fail(key, "a whole number")
        return value

    def number(self, key: str) -> float:
        """Returns a number above zero."""
        value = self._values.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
            self.fail(key, "a number above zero")
        return float(value)

    def numbers(self, key: str, cap: float) -> tuple[float, ...]:
        """Returns one or several clocks; "max" (no cap) and null (unknown) become ``cap``."""
        value = self._values.get(key, "")
        if value is None or value == _NO_CAP:
            return (cap,)
        items = value if isinstance(value, list) else [value]
        if not items or not all(type(i) in (int, float) and i > 0 for i in items):
            self.fail(key, f"a clock in MHz, a list of clocks or {_NO_CAP!r}")
        return tuple(float(item) for item in items)

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts, not empty."""
        value = self._values.get(key)
        if not isinstance(value, list) or not value or not all(type(i) is str for i in value):
            self.fail(key, "a list of texts")
        return tuple(value)

    def text_by_text(self, key: str) -> dict[str, str]:
        """Returns a mapping of texts to texts; empty when absent."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping) or not all(
            type(one) is str for pair in value.items() for one in pair
        ):
            self.fail(key, "a mapping of texts")
        return dict(value)

    def releases(self, key: str) -> None:
        """Checks a list of ``{since, until}`` (until is exclusive and may be left out)."""
        value = self._values.get(key)
        rows = value if isinstance(value, list) else []
        if not rows or not all(_is_release_range(row) for row in rows):
            self.fail(key, 'a list of {since: "8.4", until: "10.8"}')

    def flag(self, key: str) -> bool:
        """Returns a truth value, false when absent."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value


def _is_release_range(row: object) -> bool:
    if not isinstance(row, Mapping) or "since" not in row or set(row) - {"since", "until"}:
        return False
    return all(isinstance(version, str) for version in row.values())


def resolve_sources(facts: Mapping[str, Any], shared: frozenset[str], path: str) -> None:
    """Checks that every section names sources and that each of them is listed.

    Raises:
        DataError: A section without a source, or a source that no list explains.
    """
    own = facts.get("sources", {})
    known = shared | frozenset(own if isinstance(own, Mapping) else ())
    rails = ("rails",) if "rails" in facts else ()
    for key in ("module", "software", "dla", "gpu", "dram", "power", *rails):
        section = facts.get(key)
        named = section.get("source") if isinstance(section, Mapping) else None
        _check_sources(named, known, f"{key}.source", path)
    _check_sources(facts.get("power_modes_source"), known, "power_modes_source", path)


def _check_sources(named: object, known: frozenset[str], place: str, path: str) -> None:
    keys = named if isinstance(named, list) else [named]
    missing = [str(key) for key in keys if key not in known]
    if not keys or missing:
        raise DataError(
            f"{place} is {named!r}, expected a list of known sources",
            code="target.invalid",
            where=path,
            hint="add the source to targets/_sources.yaml or to a `sources:` block of this file",
        )


def names() -> tuple[str, ...]:
    """Returns the known boards in alphabetical order; files starting with "_" are no boards."""
    folder = data_folder("targets")
    return tuple(sorted(p.stem for p in folder.glob("*.yaml") if _NAME.fullmatch(p.stem)))


def get(name: str) -> Target:
    """Returns the board called ``name``, or the one that a file of your own describes.

    Args:
        name: A name of ``names()``, its words in any order and case ("Orin AGX 64GB"), or the
            path of a board file (it ends in ``.yaml``).

    Raises:
        UsageError: There is no such board (code ``target.unknown``), or edgekit does not support
            it (code ``target.unsupported``).
        DataError: The file is not a valid board description (code ``target.invalid``).
    """
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        path = data_folder("targets") / f"{name}.yaml"
        if not _NAME.fullmatch(name) or not path.is_file():
            named = same_words(name)
            if named is None:
                raise unknown_target(name)
            path = data_folder("targets") / f"{named}.yaml"
    elif not path.is_file():
        raise unknown_target(name)
    return _read(path.resolve(), path.stat().st_mtime_ns)


def similar_names(name: str) -> list[str]:
    """Returns the boards whose names hold ``name``, Jetsons first, or else the most similar ones.

    The most similar ones share the most words with it, in any order; a memory size counts least.
    """
    from difflib import get_close_matches

    known, plain = names(), name.lower()
    # a part of a name, or some of its words, is what people write
    words = _words(name)
    holding = sorted(
        (one for one in known if plain in one or (words and words <= _words(one))),
        key=lambda one: one[:7] != "jetson-",
    )
    return holding or _sharing(words, known) or get_close_matches(plain, known, n=1, cutoff=0.4)


def _sharing(words: Collection[str], known: Sequence[str]) -> list[str]:
    """Returns the boards that share the most words with some, which may be misspelt."""
    from difflib import get_close_matches

    every = sorted(frozenset[str]().union(*map(_words, known)))
    meant = {near for word in words for near in get_close_matches(word, every, n=1, cutoff=0.75)}

    def nearness(name: str) -> tuple[int, int, int]:
        parts = _words(name)
        sizes = {word for word in parts if word[0].isdigit()}
        series = parts - sizes - {"jetson"}
        return len(meant & series), -len(series - meant), len(meant & sizes)

    best = max(map(nearness, known))
    return [name for name in known if nearness(name) == best] if best[0] else []


def names_hint(name: str) -> str:
    """Returns the hint for a name that no board has."""
    *others, last = similar_names(name) or [""]
    near = f"{', '.join(others)} or {last}" if others else last
    return (f"did you mean {near}? " if near else "") + "`edgekit targets` lists all"


def same_words(name: str) -> str | None:
    """Returns the board whose name has the words of ``name`` in another order, or None."""
    words = _words(name)
    found = [known for known in names() if _words(known) == words]
    return found[0] if words and len(found) == 1 else None


def unknown_target(name: str) -> UsageError:
    """Returns the error for a name of no board: unknown, or known and not supported."""
    words = _words(name)
    for board in _other_boards(data_folder("targets"))["boards"]:
        if words in map(_words, board["names"]):
            instead = f"{board['instead']} " if "instead" in board else ""
            return UsageError(
                f"{board['title']} is not supported: it has no DLA, and its last release is "
                f"{board['last']}",
                code="target.unsupported",
                hint=f"{instead}`edgekit targets` lists the supported boards",
            )
    return UsageError(f"unknown target {name!r}", code="target.unknown", hint=names_hint(name))


def _words(name: str) -> frozenset[str]:
    idle = _other_boards(data_folder("targets"))["idle"]
    # "64 GB" is one word
    text = re.sub(r"(\d) +gb\b", r"\1gb", name.lower())
    return frozenset(re.findall(r"[a-z0-9]+", text)).difference(idle)


@lru_cache(maxsize=2)
def _other_boards(folder: Path) -> dict[str, Any]:
    return read_yaml(folder / "_other_boards.yaml")


@lru_cache(maxsize=64)
def _read(path: Path, _stamp: int) -> Target:
    facts = read_yaml(path)
    if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
        raise DataError(
            f"not a board file of schema {SCHEMA}",
            code="target.invalid",
            where=str(path),
            hint="copy the structure of another file under targets/",
        )
    shared = _shared_sources(data_folder("targets") / "_sources.yaml")
    resolve_sources(facts, shared, str(path))
    return _target(path.stem, BoardFileSection(facts, str(path)), facts)


@lru_cache(maxsize=2)
def _shared_sources(path: Path) -> frozenset[str]:
    return frozenset(read_yaml(path)["sources"])


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a knowledge file; a DataError names the line of what is not YAML."""
    try:
        return read_knowledge(path)  # type: ignore[no-any-return]
    except DataError as error:
        raise DataError(error.message, code="target.invalid", where=error.where) from error


def _target(name: str, root: BoardFileSection, facts: Mapping[str, object]) -> Target:
    dla = _dla(root.section("dla"))
    gpu_part = root.section("gpu")
    gpu = TargetGpu(
        arch=gpu_part.text("arch"),
        sms=gpu_part.whole("sms"),
        max_mhz=gpu_part.number("max_mhz"),
        int8_ops_per_clock_per_sm=gpu_part.whole("int8_ops_per_clock_per_sm"),
        fp16_ops_per_clock_per_sm=gpu_part.whole("fp16_ops_per_clock_per_sm"),
    )
    dram_part = root.section("dram")
    dram = Dram(
        bytes=dram_part.whole("gib") << 30, bytes_per_second=dram_part.number("gb_per_second") * 1e9
    )
    modes = root.section("power_modes")
    module = root.section("module")
    module.text("soc")
    emc = dram_part.number("emc_mhz")
    return Target(
        name=name,
        title=root.text("title"),
        compute_capability=gpu_part.text("compute_capability"),
        dla=dla,
        gpu=gpu,
        dram=dram,
        power_modes={key: _mode(key, modes.section(key), dla, gpu, emc) for key in modes.names()},
        tensorrt=root.section("software").text("tensorrt"),
        idle_watts=root.section("power").number("idle_watts"),
        platform=module.one_of("platform", PLATFORMS),
        facts=facts,
        rails=_rails(root.section("rails")) if root.has("rails") else None,
        contention=_contention(root.section("contention")) if root.has("contention") else {},
    )


def _dla(part: BoardFileSection) -> Dla:
    cores = part.whole("cores")
    if cores == 0:
        return _NO_DLA
    part.releases("tensorrt")
    return Dla(
        cores=cores,
        generation=part.one_of("generation", GENERATIONS),
        max_mhz=part.number("max_mhz"),
        int8_macs_per_clock=part.whole("int8_macs_per_clock"),
        sram_bytes=part.whole("sram_kib") * _KIB,
    )


def _contention(part: BoardFileSection) -> dict[str, float]:
    for name in part.names():
        if name not in (*CONTENTION, "source", "derived"):
            part.fail(name, f"one of {', '.join(CONTENTION)}")
    return {name: part.number(name) for name in CONTENTION if part.has(name)}


def _rails(part: BoardFileSection) -> PowerRails:
    return PowerRails(
        total=part.texts("total"),
        devices=part.text_by_text("devices"),
        inside=part.text_by_text("inside"),
        settle_s=part.number("settle_s"),
    )


def _mode(name: str, part: BoardFileSection, dla: Dla, gpu: TargetGpu, emc_mhz: float) -> PowerMode:
    warnings = [part.text("warning")] if part.has("warning") else []
    for key, what in (("gpu", "GPU"), ("dla", "DLA"), ("emc", "memory")):
        if part.is_null(key):
            warnings.append(f"the {what} clock of this mode is unknown, so the highest is assumed")
    clocks = part.numbers("dla", dla.max_mhz) if dla.cores else ()
    if len(clocks) == 1:
        clocks *= dla.cores
    if len(clocks) != dla.cores:
        part.fail("dla", f"one clock, or one per core ({dla.cores})")
    return PowerMode(
        name=name,
        id=part.whole("id"),
        cpu_cores=0 if part.is_null("cpu_cores") else part.whole("cpu_cores"),
        gpu_mhz=part.numbers("gpu", gpu.max_mhz)[0],
        gpu_sms=min(gpu.sms, part.whole("tpcs") * _SMS_PER_TPC),
        dla_mhz=clocks,
        memory_share=min(1.0, part.numbers("emc", emc_mhz)[0] / emc_mhz),
        default=part.flag("default"),
        warning="; ".join(warnings),
    )
