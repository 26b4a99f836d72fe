"""Parses a line of a log: removes colours and prefixes, separates severity and text, and reads the
builder's memory sizes and version numbers.
"""

from __future__ import annotations

import re

from edgekit.dla.verdicts import MemoryNeed
from edgekit_device.versions import numbered_release, show

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
# remains of colour codes if a page drops the escape character, or a program spells it out
_LEFT_ANSI = re.compile(r"(?:\^\[|\\e|\\x1b|\\033|\u241b)?\[(?:0|1;)?(?:3[0-7]|9[0-7])?m")
_STAMP = r"\[\d{1,2}/\d{1,2}/\d{4}-\d{2}:\d{2}:\d{2}\]"
_SEVERITY = r"\[[VIWEF]\]|(?:VERBOSE|DEBUG|INFO|WARNING|ERROR|INTERNAL_ERROR):(?=\s|$)"
# "[2024-03-17 11:35:19   ERROR] " of TensorRT's samples, "[E:onnxruntime:, file.h:58 log] "
_LEVEL = r"VERBOSE|DEBUG|INFO|WARNING|ERROR|INTERNAL_ERROR"
_STAMPED = (
    rf"\[\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d +(?P<level>{_LEVEL})\]"
    r"|\[(?P<ort>[VIWEF]):onnxruntime:[^\]]{0,200}\]|\[Torch-TensorRT[^\]]{0,80}\](?: -)?"
)
_TOKEN = re.compile(
    rf"\s*(?:{_STAMP}|(?P<severity>{_SEVERITY})|{_STAMPED}|\[TRT\]:?|\[TensorRT\])[ ]?"
)
_WORDS = {
    "VERBOSE": "V",
    "DEBUG": "V",
    "INFO": "I",
    "WARNING": "W",
    "ERROR": "E",
    "INTERNAL_ERROR": "F",
}
# "Nov 21 07:00:00 host app[123]: ", "2026-11-21T07:00:00+0000 host app: ", "2026-...Z stdout F "
_JOURNAL = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?"
    r"|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?)"
    r"(?: [\w.-]{1,64} [\w./@-]{1,64}(?:\[\d{1,9}\])?:| std(?:out|err) [FP])? "
)
# the start of a relevant line after another program's prefix (ROS, a container, a clock, a bullet),
# and the longest such prefix
_BEGIN = re.compile(
    rf"{_STAMP}|(?:(?:{_SEVERITY}) ?)?\[(?:TRT|TensorRT)\]|&&&& |Ultralytics (?=\d)"
    r"|(?:WARNING|ERROR): (?=\.\./nvdsinfer)"
)
_FOREIGN = 160
_UNITS = {"B": 0, "K": 10, "M": 20, "G": 30}
_SIZE = r"\s*=\s*(\d{1,12}(?:\.\d{1,6})?)\s*([KMG]?)i?B"
_PARTS = tuple(re.compile(name + _SIZE) for name in ("Managed SRAM", "Local DRAM", "Global DRAM"))


def strip(line: str) -> tuple[str, str, bool]:
    """Returns (severity, text, TensorRT's own) of a line.

    Severity is V, I, W, E, F or empty. All of ``[time] [W] [TRT] x``, ``[time] [TRT] [W] x``,
    ``WARNING: [TRT]: x``, ``[TRT] x`` and ``x`` are read; time stamps may be repeated.
    """
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "[0m" in line:
        line = _LEFT_ANSI.sub("", line)
    if line.startswith(">"):  # quoted in a discussion
        line = line.lstrip("> ")
    severity, own = "", False
    journal = _JOURNAL.match(line)
    at = journal.end() if journal else 0
    if _TOKEN.match(line, at) is None and (begin := _BEGIN.search(line, at, _FOREIGN)):
        at = begin.start()
    while match := _TOKEN.match(line, at):
        found = match["severity"]
        if found:
            severity = found[1] if found[0] == "[" else _WORDS[found[:-1]]
        elif found := match["level"]:
            severity = _WORDS[found]
        elif found := match["ort"]:
            severity = found
        own = own or "TRT]" in match[0] or "TensorRT]" in match[0]
        at = match.end()
    return severity, line[at:].strip().rstrip("`"), own


def split_items(text: str) -> list[str]:
    """Splits at commas outside brackets; at every comma if brackets do not match."""
    items, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:index])
            start = index + 1
    if depth:
        items, start = text.split(","), len(text)
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def sizes(text: str) -> MemoryNeed | None:
    """Returns ``Managed SRAM = 1 MiB, Local DRAM = 4 MiB, Global DRAM = 64 MiB`` in bytes."""
    found = []
    for part in _PARTS:
        match = part.search(text)
        if match is None:
            return None
        found.append(int(float(match[1]) * (1 << _UNITS[match[2] or "B"])))
    return MemoryNeed(*found)


def release(number: str) -> str:
    """Returns the release of TensorRT's number: 8502 is 8.5.2, 100300 is 10.3.0."""
    return show(numbered_release(int(number[:9])))
