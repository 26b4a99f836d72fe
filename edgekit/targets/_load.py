"""Finds and reads board files; a new board is a new file and needs no Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.errors import DataError, UsageError
from edgekit.targets._schema import Section, resolve_sources
from edgekit.targets._types import Dla, Dram, Gpu, PowerMode, Rails, Target

__all__ = ["alike", "get", "names", "read_yaml"]

SCHEMA = "edgekit.target/1"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_NO_DLA = Dla(cores=0, generation="", max_mhz=0.0, int8_macs_per_clock=0, sram_bytes=0)
_KIB = 1024
_SMS_PER_TPC = 2


def names() -> tuple[str, ...]:
    """Returns the known boards in alphabetical order; files starting with "_" are no boards."""
    folder = data_folder("targets")
    return tuple(sorted(p.stem for p in folder.glob("*.yaml") if _NAME.fullmatch(p.stem)))


def get(name: str) -> Target:
    """Returns the board called ``name``, or the one that a file of your own describes.

    Args:
        name: A name of ``names()``, or the path of a board file (it ends in ``.yaml``).

    Raises:
        UsageError: There is no such board (code ``target.unknown``).
        DataError: The file is not a valid board description (code ``target.invalid``).
    """
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        path = data_folder("targets") / f"{name}.yaml"
        if not _NAME.fullmatch(name) or not path.is_file():
            raise _unknown(name)
    elif not path.is_file():
        raise _unknown(name)
    return _read(path.resolve(), path.stat().st_mtime_ns)


def alike(name: str) -> list[str]:
    """Returns the boards whose names hold ``name``, Jetsons first, or else the most similar one."""
    from difflib import get_close_matches

    known, plain = names(), name.lower()
    # a part of a name is what people write
    holding = sorted((one for one in known if plain in one), key=lambda one: one[:7] != "jetson-")
    return holding or get_close_matches(plain, known, n=1, cutoff=0.4)


def _unknown(name: str) -> UsageError:
    known = names()
    near = alike(name)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    return UsageError(
        f"unknown target {name!r}",
        code="target.unknown",
        where=name,
        hint=f"{guess}the known targets are {', '.join(known)}",
    )


@lru_cache(maxsize=64)
def _read(path: Path, _stamp: int) -> Target:
    facts = read_yaml(path)
    if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
        raise DataError(
            f"this is no board file of schema {SCHEMA}",
            code="target.invalid",
            where=str(path),
            hint="see the files under targets/ for the form",
        )
    shared = _shared_sources(data_folder("targets") / "_sources.yaml")
    resolve_sources(facts, shared, str(path))
    return _target(path.stem, Section(facts, str(path)), facts)


@lru_cache(maxsize=2)
def _shared_sources(path: Path) -> frozenset[str]:
    return frozenset(read_yaml(path)["sources"])


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads a knowledge file; a DataError names the line of what is not YAML."""
    try:
        return read_knowledge(path)  # type: ignore[no-any-return]
    except DataError as error:
        raise DataError(error.message, code="target.invalid", where=error.where) from error


def _target(name: str, root: Section, facts: Mapping[str, object]) -> Target:
    dla = _dla(root.section("dla"))
    gpu_part = root.section("gpu")
    gpu = Gpu(
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
        facts=facts,
        rails=_rails(root.section("rails")) if root.has("rails") else None,
    )


def _dla(part: Section) -> Dla:
    cores = part.whole("cores")
    if cores == 0:
        return _NO_DLA
    part.releases("tensorrt")
    return Dla(
        cores=cores,
        generation=part.text("generation"),
        max_mhz=part.number("max_mhz"),
        int8_macs_per_clock=part.whole("int8_macs_per_clock"),
        sram_bytes=part.whole("sram_kib") * _KIB,
    )


def _rails(part: Section) -> Rails:
    return Rails(
        total=part.texts("total"),
        devices=part.text_by_text("devices"),
        inside=part.text_by_text("inside"),
        settle_s=part.number("settle_s"),
    )


def _mode(name: str, part: Section, dla: Dla, gpu: Gpu, emc_mhz: float) -> PowerMode:
    warnings = [part.text("warning")] if part.has("warning") else []
    if part.is_null("gpu"):
        warnings.append("the GPU clock of this mode is not known: the highest is assumed")
    clocks = part.numbers("dla", dla.max_mhz) if dla.cores else ()
    if len(clocks) == 1:
        clocks *= dla.cores
    if len(clocks) != dla.cores:
        part.fail("dla", f"one clock, or one for each of the {dla.cores} cores")
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
