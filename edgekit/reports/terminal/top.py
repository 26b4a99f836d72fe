"""The page of ``edgekit top``: a board within 80 columns, from one ``edgekit.top/1``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from edgekit.benchmark.monitor import ShownApp, Top
from edgekit.text import counted, printable, sentence
from edgekit_device.board.samples import EngineLoad, Sample
from edgekit_device.protocol.serving import ServingStatus

_GIB = 1 << 30
_BAR = 20
_NAME = 8
_ENGINES = ("GR3D", "NVDLA0", "NVDLA1", "EMC")
_WORDS = {"GR3D": "GPU", "NVDLA0": "DLA0", "NVDLA1": "DLA1"}
_STATE = {"NVDLA0": "dla0", "NVDLA1": "dla1"}
_CORES_A_LINE = 4


def page(top: Top, width: int) -> Text:
    """Returns the page; lines longer than ``width`` are cut."""
    made = Text()
    for text, style in _lines(top, width):
        line = Text(printable(text, lines=False), style)
        line.truncate(width, overflow="ellipsis")
        made.append_text(line).append("\n")
    made.right_crop(1)
    return made


def _lines(top: Top, width: int) -> Iterator[tuple[str, str]]:
    sample = top.sample
    release = f"L4T {top.facts.l4t}" if top.facts.l4t else None
    yield "  ".join(filter(None, (top.board, top.facts.module, release, top.power_mode))), "bold"
    if top.connection:
        yield f"connection: {top.connection}; retrying", "bold red"
    if sample.other and sample.other.cooling:  # above the part that a small terminal cuts
        yield f"{'slowed':<{_NAME}}{', '.join(sample.other.cooling)}", "bold red"
    yield from _engines(sample)
    yield from _cores(sample, width)
    yield from _memory(sample)
    yield from _wrapped("power", _power(top), width)
    degrees = (f"{name} {value:.1f}" for name, value in sample.temperatures_c.items())
    yield from _wrapped("temp C", degrees, width)
    clocks = (f"{name} {hz / 1e6:.0f}" for name, hz in sample.clocks_hz.items())
    yield from _wrapped("MHz", clocks, width)
    yield from _apps(top.apps)
    for warning in top.warnings[:3]:
        yield f"note: {sentence(warning)}", "dim"
    yield f"from {', '.join(top.sources) or 'nothing'}", "dim"


def _engines(sample: Sample) -> Iterator[tuple[str, str]]:
    for name in _ENGINES:
        state = sample.runtime_status.get(_STATE.get(name, ""))
        if name not in sample.engines and not state:
            continue
        engine = sample.engines.get(name) or EngineLoad()
        # a DLA's load is never shown: tegrastats always reports 0
        text = " " * (_BAR + 9)
        if name not in _STATE and engine.percent is not None:
            text = f"{_bar(engine.percent)} {engine.percent:4.0f} %"
        on = engine.on if name in _STATE else None
        power = "" if on is None else "on" if on else "off"
        clock = f"{'/'.join(dict.fromkeys(map(str, engine.mhz)))} MHz" if engine.mhz else ""
        rest = "  ".join(part for part in (power, clock, state) if part)
        yield f"{_WORDS.get(name, name):<{_NAME}}{text}  {rest}".rstrip(), ""


def _cores(sample: Sample, width: int) -> Iterator[tuple[str, str]]:
    cells = []
    for number, core in enumerate(sample.cpu):
        load = "off"
        if core is not None:
            load = "-" if core.percent is None else f"{core.percent:.0f} %"
        mhz = "" if core is None or core.mhz is None else f"{core.mhz:.0f}"
        cells.append(f"{number:>3} {load:>5} {mhz:>5}")
    wide = max(map(len, cells), default=0) + 2
    line = max(1, min(_CORES_A_LINE, (width - _NAME + 2) // wide)) if cells else 1
    for start in range(0, len(cells), line):
        word = "" if start else "CPU"
        yield f"{word:<{_NAME}}{'  '.join(cells[start : start + line])}".rstrip(), ""


def _memory(sample: Sample) -> Iterator[tuple[str, str]]:
    for use, word in ((sample.ram, "memory"), (sample.swap, "swap")):
        used, total = (use.used_bytes or 0, use.total_bytes or 0) if use else (0, 0)
        if total <= 0:
            continue
        share = 100 * used / total
        text = f"{_bar(share)} {share:4.0f} %  {used / _GIB:.1f} of {total / _GIB:.1f} GiB"
        yield f"{word:<{_NAME}}{text}", ""


def _power(top: Top) -> Iterator[str]:
    if top.total_mw is not None:
        yield f"total {top.total_mw / 1e3:.2f} W"
    for name, now in top.sample.rails().items():
        yield f"{name} {now / 1e3:.2f} W"


def _apps(apps: Mapping[str, ShownApp]) -> Iterator[tuple[str, str]]:
    for name, app in apps.items():
        parts = [f"{name} serves {app.current or 'nothing'}"]
        if isinstance(app.serving, ServingStatus):
            parts.append(
                ", ".join(
                    (counted(app.serving.requests, "request"), counted(app.serving.errors, "error"))
                )
            )
        if app.deployment not in (None, "committed"):
            parts.append(str(app.deployment))
        yield f"{'app':<{_NAME}}{'; '.join(parts)}", ""


def _wrapped(name: str, parts: Iterable[str], width: int) -> Iterator[tuple[str, str]]:
    line, word = "", name
    for part in parts:
        if line and len(line) + len(part) + 2 > width - _NAME:
            yield f"{word:<{_NAME}}{line}", ""
            line, word = "", ""
        line += ("  " if line else "") + part
    if line:
        yield f"{word:<{_NAME}}{line}", ""


def _bar(percent: float) -> str:
    filled = round(max(0.0, min(100.0, percent)) / 100 * _BAR)
    return f"[{'#' * filled}{'-' * (_BAR - filled)}]"
