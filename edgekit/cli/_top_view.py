"""How ``edgekit top`` shows a board: within 80 columns, from one ``edgekit.top/1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgekit._plain import plain

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["page"]

_GIB = 1 << 30
_BAR = 20
_NAME = 8
_MOST = 1e18
_ENGINES = ("GR3D", "NVDLA0", "NVDLA1", "EMC")
_WORDS = {"GR3D": "GPU", "NVDLA0": "DLA0", "NVDLA1": "DLA1"}
_STATE = {"NVDLA0": "dla0", "NVDLA1": "dla1"}
_CORES_A_LINE = 4


def page(document: Mapping[str, Any], width: int) -> Text:
    """Returns the page; a line that is longer than ``width`` is cut."""
    from rich.text import Text

    made = Text()
    for text, style in _lines(document, width):
        line = Text(plain(text, lines=False), style)
        line.truncate(width, overflow="ellipsis")
        made.append_text(line).append("\n")
    made.right_crop(1)
    return made


def _lines(document: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    sample, facts = _map(document.get("sample")), _map(document.get("facts"))
    release = f"L4T {facts['l4t']}" if facts.get("l4t") else None
    parts = (document.get("board"), facts.get("module"), release, document.get("power_mode"))
    yield "  ".join(str(part) for part in parts if part), "bold"
    if document.get("connection"):
        yield f"connection: {document['connection']}; trying again", "bold red"
    cooling = _map(_map(sample.get("other")).get("cooling"))
    if cooling:  # before what a small terminal cuts
        yield f"{'slowed':<{_NAME}}{', '.join(map(str, cooling))}", "bold red"
    yield from _engines(sample)
    yield from _cores(sample, width)
    yield from _memory(sample)
    yield from _wrapped("power", _power(document, sample), width)
    degrees = (f"{name} {value:.1f}" for name, value in _numbers(sample.get("temperatures_c")))
    yield from _wrapped("temp C", degrees, width)
    clocks = (f"{name} {hz / 1e6:.0f}" for name, hz in _numbers(sample.get("clocks_hz")))
    yield from _wrapped("MHz", clocks, width)
    yield from _apps(_map(document.get("apps")))
    for warning in _list(document.get("warnings"))[:3]:
        yield f"note: {warning}", "dim"
    sources = ", ".join(map(str, _list(document.get("sources"))))
    yield f"from {sources or 'nothing'}", "dim"


def _engines(sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    engines = _map(sample.get("engines"))
    states = _map(sample.get("runtime_status"))
    for name in _ENGINES:
        one, state = _map(engines.get(name)), states.get(_STATE.get(name, ""))
        if not one and not state:
            continue
        # a DLA's load is never told: tegrastats's number for it stays 0
        told = " " * (_BAR + 9)
        if name not in _STATE and (percent := dict(_numbers(one)).get("percent")) is not None:
            told = f"{_bar(percent)} {percent:4.0f} %"
        on = one.get("on") if name in _STATE else None
        power = "" if on is None else "on" if on else "off"
        mhz = [str(clock) for clock in _list(one.get("mhz"))]
        clock = f"{'/'.join(dict.fromkeys(mhz))} MHz" if mhz else ""
        rest = "  ".join(str(part) for part in (power, clock, state) if part)
        yield f"{_WORDS.get(name, name):<{_NAME}}{told}  {rest}".rstrip(), ""


def _cores(sample: Mapping[str, Any], width: int) -> Iterator[tuple[str, str]]:
    cells = []
    for number, core in enumerate(_list(sample.get("cpu"))):
        known = dict(_numbers(core))
        text = f"{known['percent']:.0f} %" if "percent" in known else "-"
        mhz = f"{known['mhz']:.0f}" if "mhz" in known else ""
        cells.append(f"{number:>3} {'off' if core is None else text:>5} {mhz:>5}")
    wide = max(map(len, cells), default=0) + 2
    line = max(1, min(_CORES_A_LINE, (width - _NAME + 2) // wide)) if cells else 1
    for start in range(0, len(cells), line):
        word = "" if start else "CPU"
        yield f"{word:<{_NAME}}{'  '.join(cells[start : start + line])}".rstrip(), ""


def _memory(sample: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, word in (("ram", "memory"), ("swap", "swap")):
        size = dict(_numbers(sample.get(name)))
        used, total = size.get("used_bytes", 0), size.get("total_bytes", 0)
        if total <= 0:
            continue
        share = 100 * used / total
        text = f"{_bar(share)} {share:4.0f} %  {used / _GIB:.1f} of {total / _GIB:.1f} GiB"
        yield f"{word:<{_NAME}}{text}", ""


def _power(document: Mapping[str, Any], sample: Mapping[str, Any]) -> Iterator[str]:
    total = document.get("total_mw")
    if isinstance(total, (int, float)):
        yield f"total {total / 1e3:.2f} W"
    for name, values in _map(sample.get("rails_mw")).items():
        now = dict(_numbers(values)).get("now")
        if now is not None:
            yield f"{name} {now / 1e3:.2f} W"


def _apps(apps: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, facts in apps.items():
        serving = _map(_map(facts).get("serving"))
        told = [f"{name} serves {_map(facts).get('current') or 'nothing'}"]
        if serving and "error" not in serving:
            told.append(f"{serving.get('requests')} requests, {serving.get('errors')} errors")
        state = _map(facts).get("deployment")
        if state not in (None, "committed"):
            told.append(str(state))
        yield f"{'app':<{_NAME}}{'; '.join(told)}", ""


def _wrapped(name: str, parts: Iterator[str], width: int) -> Iterator[tuple[str, str]]:
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


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbers(value: object) -> list[tuple[str, float]]:
    """The numbers of a mapping that are no larger than a board's can be."""
    return [
        (str(k), v) for k, v in _map(value).items() if type(v) in (int, float) and abs(v) < _MOST
    ]
