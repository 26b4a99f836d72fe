"""Formatting of numbers and names (an absent value is an en dash), and plain text in a given number
of columns, with colours if a terminal shows them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.text import ABSENT, counted, printable

if TYPE_CHECKING:
    from edgekit.dla.verdicts import LayerVerdict
    from edgekit.reports.schema import Accuracy, Report

POOLS = {"managed_sram": "SRAM", "local_dram": "local DRAM", "global_dram": "global DRAM"}
WIDTH = 80
_LEAST = 12  # columns of a name that shares a line with the other cells
_GAP = 2
RELEASE_RULE = "general.release"
"""The rule that a TensorRT release breaks which no source covers."""


def clean(text: object) -> str:
    """Returns a name in one line; control characters and bidirectional marks become escapes."""
    return printable(str(text), lines=False)


def compared_on(accuracy: Accuracy) -> str:
    """Returns the accuracy's data, and a remark if only a CPU computed it."""
    inputs = accuracy.inputs
    data = accuracy.data or (counted(inputs, "input") if inputs else "")
    return ", ".join(clean(words) for words in (data, accuracy.computed) if words)


def significant(value: float | None, digits: int = 3) -> str:
    """Returns a number with ``digits`` significant digits: 1.23, 12.3, 1,230; 1.23e-07 if tiny."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    # as Python's format `g` does
    if exponent < -4:
        return f"{value:.{digits - 1}e}"
    # rounding can carry into the next power of ten (9.999 is 10.0)
    rounded = round(value, digits - 1 - exponent)
    exponent = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(digits - 1 - exponent, 0)}f}"


def _scaled(value: float | None, steps: tuple[tuple[float, str], ...]) -> str:
    if value is None or not math.isfinite(value):
        return ABSENT
    for factor, unit in steps:
        # 999.6 would print as 1,000 of the smaller unit
        if abs(value) >= factor * 0.9995:
            return f"{significant(value / factor)} {unit}"
    return f"{significant(value / steps[-1][0])} {steps[-1][1]}"


def microseconds(value: float | None) -> str:
    """Formats microseconds as s, ms, µs or ns."""
    if value == 0:
        return "0 µs"
    return _scaled(value, ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")))


def measured_time(milliseconds: float | None) -> str:
    """Formats a measured time with the digits that distinguish two runs: 119.394 ms, 93.1 µs."""
    if milliseconds is None or not math.isfinite(milliseconds):
        return ABSENT
    if abs(milliseconds) < 1:
        return f"{1000 * milliseconds:.1f} µs"
    return f"{milliseconds:,.3f} ms"


def percentile_cell(value: float | None, name: str, frames: int, digits: int = 3) -> str:
    """Returns a percentile as tables print it.

    Args:
        value: The percentile; None if there is none.
        name: Its name in ``edgekit.benchmark.statistics.SparsePercentiles``.
        frames: Number of frames.
        digits: Decimal places.

    Returns:
        "-" if no frame is beyond it; a "*" at the end if fewer than ``tail_frames`` are.
    """
    from edgekit.benchmark.statistics import sparse_percentiles

    found = sparse_percentiles(frames)
    if value is None or name in found.empty:
        return "-"
    return f"{value:.{digits}f}" + "*" * (name in found.few)


def energy(value: float | None) -> str:
    """Formats microjoules as J, mJ or µJ."""
    return _scaled(value, ((1e6, "J"), (1e3, "mJ"), (1.0, "µJ")))


def seconds(value: float | None) -> str:
    """Formats seconds as min, s or ms."""
    return _scaled(value, ((60.0, "min"), (1.0, "s"), (1e-3, "ms")))


def size(value: float | None) -> str:
    """Formats bytes with binary units; a whole number of units has no decimals."""
    units = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))
    if value:
        for factor, unit in units[:-1]:
            # 655,680 KiB is harder to read than 640 MiB
            if factor <= abs(value) < 100_000 * factor and value % factor == 0:
                return f"{value // factor:,.0f} {unit}"
        if abs(value) < units[-2][0] and float(value).is_integer():
            return f"{value:,.0f} B"
    return _scaled(value, units)


def macs(value: float | None) -> str:
    """Formats multiply-accumulates with decimal prefixes; the caller names the unit."""
    if value is not None and abs(value) < 1000:
        return f"{value:g}"
    return _scaled(value, ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")))


def count(value: float | None) -> str:
    """Formats a whole number with thousands separators."""
    return ABSENT if value is None else f"{value:,.0f}"


def uncertainty(dla: LayerVerdict) -> str:
    """Returns why the verdict of a layer is not certain; "" if it is."""
    if dla.certainty != "disputed":
        return ""
    rules = {reason.rule for reason in dla.reasons}
    return "no source covers this release" if rules == {RELEASE_RULE} else "sources disagree"


def energy_words(rate_hz: float | None) -> str:
    """Returns the name of an energy: "energy, back to back" or "energy at 10/s"."""
    return f"energy{',' if rate_hz is None else ''} {rate_words(rate_hz)}"


def rate_words(rate_hz: float | None) -> str:
    """Returns how frames follow each other: "back to back" or "at 10/s"."""
    return "back to back" if rate_hz is None else f"at {rate_hz:g}/s"


def prediction_title(source: str = "", unknown: int = 0, rate_hz: float | None = None) -> str:
    """Returns the title of a plan's figures.

    Args:
        source: Source of its times: "" or "predicted", or how much was measured.
        unknown: Number of layers with unknown cost, which the figures leave out.
        rate_hz: Frames per second of its energies; None: back to back.
    """
    title = "Predicted for the board (not measured)"
    if source not in ("", "predicted"):
        title = f"For the board: this plan's times {source}; power predicted"
    if unknown:
        title += f", not counting {counted(unknown, 'layer')} of unknown cost"
    return f"{title}; {energy_words(rate_hz)}"


def change(percent: float) -> str:
    """Returns a change with its sign, with three digits if it has a fraction."""
    size = abs(percent)
    # from these limits on, rounding to three digits carries: 9.995 is shown as 10.0
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else None
    shown = f"{percent:+.3g}" if digits is None else f"{percent:+,.{digits}f}"
    return f"{shown} %"


def mode_words(report: Report) -> str:
    """Returns a report's power mode: the plan's, and the measured mode if it differs."""
    planned, bench = report.power_mode, report.bench
    if not planned or bench is None or not bench.latency_ms:
        return planned
    seen = bench.power_mode or ""
    # nvpmodel names a mode MODE_30W where the board's file has 30W
    if seen.upper().removeprefix("MODE_") == planned.upper():
        return planned
    return f"planned for {planned}" + (f", measured in {seen}" if seen else "")


def several_plans(plans: Iterable[int | None]) -> bool:
    """Returns True if parts of a run belong to more than one plan, by their plans' numbers."""
    return len({plan or 0 for plan in plans}) > 1


def plan_prefix(number: int | None, several: bool) -> str:
    """Returns "plan 1, " for plan 0 of several, numbered as `edgekit plan` does; else ""."""
    return f"plan {(number or 0) + 1}, " if several else ""


def shape(sizes: Sequence[int | str]) -> str:
    """Returns a tensor's shape: "1x64x28x28", "scalar"."""
    return "x".join(map(str, sizes)) or "scalar"


class Page:
    """Collects lines, wrapped at ``width`` columns; names from a model are made harmless.

    Args:
        width: Columns.
        colour: True if styles become escape sequences.
    """

    def __init__(self, width: int = WIDTH, *, colour: bool = False) -> None:
        self._width = max(width, 20)
        self._colour = colour
        self._lines: list[str] = []

    def add(self, text: str = "", *, indent: int = 0, hang: int = 0, style: str = "") -> None:
        """Adds a paragraph; its further lines are indented by ``hang`` more columns."""
        first, rest = " " * indent, " " * (indent + hang)
        lines = textwrap.wrap(
            clean(text),
            self._width,
            initial_indent=first,
            subsequent_indent=rest,
            # a layer's name stays whole, so that it can be copied
            break_on_hyphens=False,
        )
        self._lines += [self._styled(line, style) for line in lines or [""]]

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
        """Adds a table; ``right`` has an "r" for each column that is aligned right.

        Lines are never wrapped: the caller gives cells that fit. A row of one cell has a separate
        line and does not affect the columns' widths.
        """
        cells = [list(head), *([clean(cell) for cell in row] for row in rows)]
        whole = [row for row in cells if len(row) == len(head)]
        widths = [max(len(row[i]) for row in whole) for i in range(len(head))]
        for number, row in enumerate(cells):
            if len(row) == 1 < len(head):
                self._lines.append(row[0])
                continue
            padded = [
                cell.rjust(width) if right[i : i + 1] == "r" else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            line = "  ".join(padded).rstrip()
            self._lines.append(self._styled(line, "" if number else "dim"))

    def _styled(self, line: str, style: str) -> str:
        if not self._colour or not style or not line:
            return line
        # rich takes long to import, and only a terminal needs it
        from rich.style import Style

        body = line.lstrip(" ")
        return line[: len(line) - len(body)] + Style.parse(style).render(body)

    def __str__(self) -> str:
        return "\n".join(self._lines)


def names_in_columns(
    page: Page,
    head: Sequence[str],
    rows: Sequence[Mapping[str, str]],
    *,
    width: int | None = None,
    spared: Sequence[str] = (),
    right: Sequence[str] = (),
) -> None:
    """Adds a table to a page; names that do not fit get a separate line, and a cell without a
    value has a dash.

    Args:
        page: The page.
        head: The columns; the first column holds the names.
        rows: Cells by column.
        width: Columns of the terminal; None if lines may be of any length.
        spared: Columns that are left out first if the names do not fit.
        right: Columns that are aligned right.
    """
    wide = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in head}
    columns = list(head)
    for name in spared:
        if width is None or _needed(columns, wide) <= width:
            break
        columns.remove(name)
    space = None
    if width is not None and _needed(columns, wide) > width:
        space = max(width - _needed(columns[1:], wide) - _GAP, _LEAST)
    cells: list[list[str]] = []
    for row in rows:
        line = [row[name] or ABSENT for name in columns]
        if space is not None and len(line[0]) > space:
            # a row of one cell is a line of its own and does not widen the column
            cells.append([line[0]])
            line[0] = ""
        cells.append(line)
    sides = "".join("r" if name in right else "l" for name in columns)
    page.table(columns, cells, sides)


def _needed(columns: Sequence[str], wide: Mapping[str, int]) -> int:
    return sum(wide[name] for name in columns) + _GAP * (len(columns) - 1)
