"""The charts of the HTML page: small inline SVG without text for one network, and the timeline
of several networks. Colours are classes of the page's style sheet, which has a light and a dark
scheme; titles and labels with a model's names are escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape

from edgekit.reports.schema import Line, Slot
from edgekit.reports.text import clean, microseconds, plan_prefix, several_plans
from edgekit.schedule.plans import NetworkPlan, Plans, TimelineEntry
from edgekit.text import counted, percent

LINES = 8
"""Colours of lines in the style sheet; further lines are dashed in the same colours."""
COLOURS = 8
"""Colours of networks in the style sheet; with more networks they come again."""
_LEFT, _WIDTH, _ROW, _BAR = 120, 1000, 34, 24
_LETTER = 6.6  # of a label, in the drawing's units


def device_class(device: str) -> str:
    """Returns the style class of a device: "gpu", "dla0", "dla1"; others look like the GPU."""
    name = device.lower()
    return name if name in ("gpu", "dla0", "dla1") else "gpu"


def _figure(
    width: float, height: float, label: str, shapes: Sequence[str], css: str, role: str = "img"
) -> str:
    """Wraps shapes; an empty label marks a drawing that only repeats the text next to it."""
    said = f'role="{role}" aria-label="{escape(clean(label))}"' if label else 'aria-hidden="true"'
    return (
        f'<svg class="{css}" viewBox="0 0 {width:g} {height:g}" preserveAspectRatio="none" {said}>'
        + "".join(shapes)
        + "</svg>"
    )


def _rect(x: float, width: float, y: float, height: float, css: str, title: str = "") -> str:
    inner = f"<title>{escape(clean(title))}</title>" if title else ""
    return (
        f'<rect x="{x:.3f}" y="{y:.2f}" width="{max(width, 0):.3f}" height="{height:.2f}" '
        f'class="{css}">{inner}</rect>'
    )


def bar(fraction: float, css: str) -> str:
    """Draws a horizontal bar; ``fraction`` (0 to 1) of the cell's width."""
    width = 100 * min(max(fraction, 0.0), 1.0)
    return _figure(100, 10, "", [_rect(0, width, 0, 10, css)], "bar")


def shares_bar(devices: Mapping[str, float]) -> str:
    """Draws each device's fraction of the MACs as parts of one bar."""
    shapes, x = [], 0.0
    for device, fraction in devices.items():
        title = f"{device}: {percent(fraction)} of the MACs"
        shapes.append(_rect(x, 1000 * fraction, 0, 20, f"fill-{device_class(device)}", title))
        x += 1000 * fraction
    label = "Share of the MACs: " + ", ".join(
        f"{device} {percent(fraction)}" for device, fraction in devices.items()
    )
    return _figure(1000, 20, label, shapes, "shares")


def limit_bar(fraction: float, css: str) -> str:
    """Draws a bar against its limit, which is at four fifths of the cell, so that excess shows."""
    # 1.25 of the limit fills the cell
    width = 80 * min(max(fraction, 0.0), 1.25)
    shapes = [_rect(0, width, 0, 10, "fill-over" if fraction > 1 else css)]
    return _figure(100, 10, "", [*shapes, _rect(79.5, 1, 0, 10, "fill-limit")], "bar")


def track(
    slots: Sequence[Slot],
    device: str,
    end: float,
    clock: str = "predicted",
    linked: Collection[int] = (),
) -> str:
    """Draws the busy times of a device; the whole width is ``end``, microseconds.

    A segment of the first plan that is in ``linked`` is a link to its row.
    """
    several = several_plans(slot.plan for slot in slots)
    slots = [slot for slot in slots if slot.device == device]
    scale = 1000 / end if end > 0 else 0.0
    shapes = []
    for slot in slots:
        title = _slot_title(slot, device, clock, several)
        shape = _rect(
            slot.start_us * scale,
            slot.duration_us * scale,
            0,
            24,
            f"slot fill-{device_class(device)}",
            title,
        )
        if slot.plan == 0 and slot.segment in linked and slot.layers != 0:
            name = escape(clean(title))
            shape = f'<a href="#segment-{slot.segment:d}" aria-label="{name}">{shape}</a>'
        shapes.append(shape)
    busy = microseconds(sum(slot.duration_us for slot in slots))
    many = counted(sum(slot.layers != 0 for slot in slots), "segment")
    label = f"{device}: {many}, busy for {busy} of {microseconds(end)}"
    return _figure(1000, 24, label, shapes, "track", role="group" if linked else "img")


def _slot_title(slot: Slot, device: str, clock: str, several: bool) -> str:
    number = plan_prefix(slot.plan, several) + f"segment {slot.segment}"
    time = f"{microseconds(slot.duration_us)} {clock}"
    if slot.layers == 0:
        return f"reformats on {device} for {number}: {time}"
    what = f"{number} on {device}: "
    if slot.layers:
        what += f"{counted(slot.layers, 'layer')}, {slot.first[:200]} to {slot.last[:200]}, "
    if slot.reformats_us:
        time += f", including {microseconds(slot.reformats_us)} of reformats"
    return what + time


def skyline(rows: Sequence[tuple[str, float]], label: str) -> str:
    """Draws a column per layer from left to right, the slowest over the full height.

    Args:
        rows: Device and microseconds of each layer, in graph order.
        label: Description of the picture.
    """
    top = max((time for _, time in rows), default=0.0) or 1.0
    wide = 1000 / max(len(rows), 1)
    # with more layers the gaps would be thinner than a pixel
    gap = 0.12 * wide if len(rows) <= 400 else 0.0
    # one path for each device, not an element for each of up to thousands of layers
    paths: dict[str, list[str]] = {}
    for i, (device, time) in enumerate(rows):
        high = 100 * time / top
        if high > 0:
            paths.setdefault(device_class(device), []).append(
                f"M{i * wide:.2f} 100v{-max(high, 0.5):.2f}h{wide - gap:.2f}V100z"
            )
    shapes = [f'<path class="fill-{css}" d="{"".join(d)}"/>' for css, d in sorted(paths.items())]
    return _figure(1000, 100, label, shapes, "skyline")


def lines(series: Sequence[Line], span: tuple[float, float], top: float, label: str) -> str:
    """Draws values over time from 0 to ``top``; ``span`` is from the left to the right edge.

    A dashed vertical line marks second 0, the start of the measurement.
    """
    begin, end = span
    across, up = 1000 / ((end - begin) or 1.0), 200 / (top or 1.0)
    shapes = []
    if begin < 0 < end:
        shapes.append(f'<path class="begin" d="M{-begin * across:.1f} 0V200"/>')
    for number, line in enumerate(series):
        points = " ".join(
            f"{(t - begin) * across:.1f},{200 - min(max(v, 0.0) * up, 200):.1f}"
            for t, v in line.points
        )
        dash = " dash" if number >= LINES else ""
        shapes.append(f'<polyline class="line net{number % LINES}{dash}" points="{points}"/>')
    return _figure(1000, 200, label, shapes, "lines")


def histogram(counts: Sequence[int], label: str) -> str:
    """Draws a column per bin, the highest over the full height."""
    top = max(counts, default=0) or 1
    shapes = [
        _rect(10 * i + 0.5, 9, 100 - 100 * n / top, 100 * n / top, "fill-measured", str(n))
        for i, n in enumerate(counts)
        if n
    ]
    return _figure(10 * len(counts), 100, label, shapes, "histogram")


def ticks(begin: float, end: float, count: int = 10) -> list[float]:
    """Returns round numbers from ``begin`` to ``end``: steps of 1, 2 or 5 times a power of ten."""
    span = end - begin
    if span <= 0:
        return [begin]
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * k for k in (1, 2, 5, 10, 20) if span / (power * k) <= count)
    # an end that is a tick must not be lost by rounding
    first, last = math.ceil(begin / step - 1e-9), math.floor(end / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def busy_window(document: Plans) -> float:
    """Returns the time when the first frames are done, in microseconds."""
    return max((s.end_us for s in document.timeline if s.frame == 0), default=0.0)


def gantt(document: Plans, begin: float = 0.0, end: float | None = None) -> str:
    """Draws an ``edgekit.plans/1`` timeline from ``begin`` to ``end``, microseconds.

    Without ``end`` it draws the whole cycle; work beyond the end of a repeated cycle is drawn at
    the cycle's beginning.
    """
    return _Drawing(document, begin, document.cycle_us if end is None else end).svg()


class _Drawing:
    def __init__(self, document: Plans, begin: float, end: float) -> None:
        self.document = document
        self.begin, self.end = begin, end
        self.devices = list(document.utilisation)
        self.networks = [network.name for network in document.networks]
        self.scale = (_WIDTH - _LEFT - 10) / (end - begin) if end > begin else 0.0

    def svg(self) -> str:
        rows = len(self.devices) + len(self.networks)
        height = rows * _ROW + 12 + 30
        parts = [*self._axis(height), *self._device_rows(), *self._network_rows()]
        names = ", ".join(map(str, self.networks))
        label = (
            f"Timeline of {names} on {', '.join(self.devices)}, "
            f"{microseconds(self.begin)} to {microseconds(self.end)}"
        )
        return (
            f'<svg class="gantt" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-label="{escape(clean(label))}">' + "".join(parts) + "</svg>"
        )

    def _x(self, us: float) -> float:
        return _LEFT + (us - self.begin) * self.scale

    def _colour(self, network: str) -> str:
        return f"net{self.networks.index(network) % COLOURS}"

    def _axis(self, height: int) -> Iterator[str]:
        bottom = height - 30
        for us in ticks(self.begin, self.end):
            x = self._x(us)
            yield f'<line class="grid" x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{bottom}"/>'
            yield (
                f'<text class="axis" x="{x:.2f}" y="{bottom + 16}" text-anchor="middle">'
                f"{us / 1e3:g}</text>"
            )
        yield f'<text class="axis" x="{_LEFT - 12}" y="{bottom + 16}" text-anchor="end">ms</text>'

    def _row(self, number: int, name: str, css: str) -> str:
        y = number * _ROW + (12 if number >= len(self.devices) else 0)
        shown = name if len(name) <= 15 else name[:14] + "…"
        return (
            f'<rect class="lane" x="{_LEFT}" y="{y + 3}" width="{_WIDTH - _LEFT - 10}" '
            f'height="{_BAR + 4}"/>'
            f'<text class="{css}" x="{_LEFT - 12}" y="{y + 21}" text-anchor="end">'
            f"{escape(clean(shown))}</text>"
        )

    def _spans(self, start: float, stop: float) -> Iterator[tuple[float, float]]:
        """Yields the parts of a span in the window; a repeated cycle continues at its beginning."""
        cycle = self.document.cycle_us if self.document.repeats else 0.0
        shifts: Sequence[float] = (0.0,)
        if cycle:
            # a span may cover several cycles: each copy is moved into the drawn one
            shifts = [k * cycle for k in range(int(start // cycle), int(stop // cycle) + 1)]
        for shift in shifts:
            low, high = max(start - shift, self.begin), min(stop - shift, self.end)
            if high > low:
                yield low, high

    def _device_rows(self) -> Iterator[str]:
        for number, device in enumerate(self.devices):
            yield self._row(number, device, "rowname")
            y = number * _ROW + 5
            for slot in self.document.timeline:
                if slot.device != device:
                    continue
                css = self._colour(slot.network)
                if slot.kind == "reformat":
                    css += " hand"
                for low, high in self._spans(slot.start_us, slot.end_us):
                    yield self._bar(low, high, y, css, slot)

    def _bar(self, low: float, high: float, y: int, css: str, slot: TimelineEntry) -> str:
        x, width = self._x(low), (high - low) * self.scale
        took = slot.end_us - slot.start_us
        if slot.kind == "reformat":
            what = "reformat"
        else:
            what = f"{counted(slot.layers, 'layer')}, {slot.first} to {slot.last}"
        slower = took / slot.alone_us - 1 if slot.alone_us else 0.0
        title = (
            f"{slot.network}, frame {slot.frame} on {slot.device}: {what}; "
            f"{microseconds(took)} predicted"
            + (f", {100 * slower:.0f} % longer by contention" if slower > 0.005 else "")
        )
        label = clean(slot.network)
        text = ""
        if width > len(label) * _LETTER + 8 and slot.kind == "layers":
            text = (
                f'<text class="inbar" x="{x + width / 2:.2f}" y="{y + 16}" '
                f'text-anchor="middle">{escape(label)}</text>'
            )
        return (
            f'<g><title>{escape(clean(title))}</title><rect class="{css}" x="{x:.2f}" y="{y}" '
            f'width="{max(width, 0.75):.2f}" height="{_BAR}"/>{text}</g>'
        )

    def _network_rows(self) -> Iterator[str]:
        for index, network in enumerate(self.document.networks):
            number = len(self.devices) + index
            yield self._row(number, network.name, "rowname")
            y = number * _ROW + 12 + 5
            cycle, frames = self.document.cycle_us, network.frames
            for frame in range(frames):
                arrival = frame * cycle / frames if network.rate_hz else 0.0
                own = [
                    slot
                    for slot in self.document.timeline
                    if slot.network == network.name and slot.frame == frame
                ]
                end = max((slot.end_us for slot in own), default=arrival)
                title = (
                    f"{network.name}, frame {frame}: arrives at {arrival / 1e3:.4g} ms, done after "
                    f"{microseconds(end - arrival)}"
                )
                for low, high in self._spans(arrival, end):
                    yield (
                        f"<g><title>{escape(clean(title))}</title>"
                        f'<rect class="{self._colour(network.name)} frame" x="{self._x(low):.2f}" '
                        f'y="{y + 6}" width="{max((high - low) * self.scale, 0.75):.2f}" '
                        f'height="{_BAR - 12}"/></g>'
                    )
                if network.deadline_us is not None:
                    yield from self._deadline(network, frame, arrival + network.deadline_us, y)

    def _deadline(self, network: NetworkPlan, frame: int, due: float, y: int) -> Iterator[str]:
        cycle = self.document.cycle_us
        # a deadline at the cycle's end is drawn there, not at 0
        if self.document.repeats and due > cycle + 1e-6:
            due %= cycle
        if not self.begin <= due <= self.end + 1e-6:
            return
        x = self._x(due)
        title = f"{network.name}, frame {frame}: deadline at {due / 1e3:.4g} ms"
        yield (
            f"<g><title>{escape(clean(title))}</title>"
            f'<line class="deadline" x1="{x:.2f}" x2="{x:.2f}" y1="{y - 2}" y2="{y + _BAR + 2}"/>'
            f'<path class="flag" d="M{x:.2f} {y - 2} h-7 l7 7 z"/></g>'
        )
