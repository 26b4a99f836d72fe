"""The end-of-run summary on a terminal: what a person wants to read, in at most 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.report import _text as text
from edgekit.report._bench_facts import PERCENTILES, latency_shown, serving_words
from edgekit.report._built import built_line
from edgekit.report._document import AIMS, advantage
from edgekit.report._layers import sharing_words
from edgekit.report._results import compared_on, measure_words, part_words, warning_words

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["prediction_table", "terminal_summary"]

WIDTH = 80
SAME = 5e-6  # relative; the plan's figures are rounded
SEGMENTS = 4  # as many segments, or plans, as a person wants to read at the end of a run


def prediction_table(
    rows: list[Mapping[str, Any]], objective: str, source: str = "", unknown: int = 0
) -> RenderableType:
    """Returns the plan's prediction beside the baselines', and what the objective brings.

    Args:
        rows: From ``comparison``.
        objective: The plan's.
        source: Where the plan's times come from, as ``source_of`` says it; "" for predicted.
        unknown: How many layers are in no figure, since their cost is not known.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    marked = any(row.get("keeps") is False for row in rows)
    table = Table(
        title=text.prediction_title(source, unknown), title_justify="left", title_style="bold",
        box=None, padding=(0, 1 if marked else 2, 0, 0), expand=False,
    )  # fmt: skip
    table.add_column("placement", header_style="dim")
    against = f"{AIMS[objective][1]}\nvs plan"
    for name in ("latency", "per second", "energy", "GPU time", against):
        table.add_column(name, justify="right", header_style="dim", no_wrap=True)
    for row in rows:
        if row["latency_us"] is None:
            table.add_row(row["label"], "not possible", style="dim")
            continue
        table.add_row(
            f"{row['label']} *" if row.get("keeps") is False else row["label"],
            text.microseconds(row["latency_us"]),
            text.significant(row.get("throughput_qps")), text.energy(row.get("energy_uj")),
            text.microseconds(row.get("gpu_us")), _change(row),
            style="bold" if row["key"] == "plan" else "",
        )  # fmt: skip
    if marked:
        table.caption, table.caption_justify = "* breaks what was asked of the plan", "left"
    brings = advantage(rows, objective)
    return Group(table, Text(brings, style="bold")) if brings else table


def _change(row: Mapping[str, Any]) -> str:
    change = row.get("change")
    if row["key"] == "plan" or change is None:
        return "" if row["key"] == "plan" else text.ABSENT
    return "the same" if abs(change) < SAME else text.change(100 * change)


def _placement(placement: Mapping[str, Any]) -> list[tuple[str, str]]:
    plans = placement.get("plans", ())  # not in older documents
    if len(plans) > 1:
        lines = [_share(plan) for plan in plans[:SEGMENTS]]
        if len(plans) > SEGMENTS:
            lines.append(f"and {text.counted(len(plans) - SEGMENTS, 'more plan')}")
    else:
        lines = [
            f"{row['device']}: {text.counted(row['layers'], 'layer')}"
            + (
                f", {text.percent(row['macs_fraction'])} of {text.macs(placement['macs'])} MACs"
                if placement["macs"]
                else ""
            )
            + (
                f", busy {text.microseconds(row['predicted_us'])} (predicted)"
                if row["predicted_us"]
                else ""
            )
            for row in placement["devices"]
        ]
    rows = [("Placement", "\n".join(lines))]
    if lost := sharing_words(placement.get("frame")):
        rows.append(("Contention", lost))
    if placement["loadables"]:
        pools = placement["pools"]
        sizes = ", ".join(
            f"{name} {text.size(pools[key])}" for key, name in text.POOLS.items() if key in pools
        )
        changes = text.counted(placement["transitions"], "device change")
        rows.append(("Loadables", f"{len(placement['loadables'])} on the DLA; {changes}"))
        if sizes:
            rows.append(("Pools", sizes))
    return rows


def _share(plan: Mapping[str, Any]) -> str:
    """Returns what a frame of one of several plans takes on each of its devices."""
    return f"{text.percent(plan['share'])} of the frames" + "".join(
        f"\n  {text.clean(row['device'])}: {text.counted(row['layers'], 'layer')}, "
        f"busy {text.microseconds(row['busy_us'])} (predicted)"
        for row in plan["devices"]
        if row["layers"]
    )


def _accuracy(accuracy: Mapping[str, Any]) -> str:
    parts = [
        f"cosine {measure_words(accuracy, 'cosine')}",
        f"SNR {measure_words(accuracy, 'snr_db')}",
        f"max abs {measure_words(accuracy, 'max_abs')}",
        f"top-1 agreement {measure_words(accuracy, 'top1_agreement')}",
    ]
    data = compared_on(accuracy)
    told = "\n".join(warning_words(accuracy))
    if not accuracy.get("constant"):
        told += ("\n" if told else "") + ", ".join(parts)
    told += f"\non {data}" if data else ""
    told += "".join(f"\n{one}" for one in part_words(accuracy))
    segments = accuracy.get("segments") or ()
    several = len({segment.get("lane") for segment in segments}) > 1
    told += "".join(f"\n{_segment(segment, several)}" for segment in segments[:SEGMENTS])
    more = len(segments) - SEGMENTS
    return told + (
        f"\nand {text.counted(more, 'more segment')}, see the report" if more > 0 else ""
    )


def _segment(segment: Mapping[str, Any], several: bool) -> str:
    where = (text.clean(segment.get(key, "")) for key in ("segment", "device"))
    lane = f"plan {segment['lane'] + 1}, " if several else ""
    if segment.get("constant"):
        return f"{lane}up to segment {' on '.join(where)}: the same for all inputs"
    return (
        f"{lane}up to segment {' on '.join(where)}: "
        f"cosine {measure_words(segment, 'cosine')}, SNR {measure_words(segment, 'snr_db')}"
    )


def _bench(bench: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[str]:
    """Returns the times, why they are not to be quoted, and what measures again."""
    latency = {key: 1000 * value for key, value in bench["latency_ms"].items()}
    parts = [f"{text.microseconds(latency.get('median'))} median"]
    if latency_shown(bench).get("p99") == PERCENTILES["p99"]:  # as everywhere; not of a few frames
        parts.append(f"{text.microseconds(latency['p99'])} p99")
    parts.append(f"{text.significant(bench['throughput_qps'])} per second")
    told = [", ".join(parts) + f" ({verdict['status']})"]
    if other := serving_words(bench):
        told.append(f"of {other}")
    told += [text.clean(reason["message"]) for reason in verdict["reasons"]]
    if verdict.get("command"):
        told.append(f"measure again: {text.clean(verdict['command'])}")
    return told


def _bundle(bundle: Mapping[str, Any]) -> str:
    full, stripped = bundle.get("bytes"), bundle.get("stripped_bytes")
    share = f" ({text.percent(stripped / full)})" if full and stripped is not None else ""
    return f"{text.size(full)}, stripped {text.size(stripped)}{share}"


def terminal_summary(document: Mapping[str, Any], console: Console) -> None:
    """Prints the summary of an ``edgekit.report/1`` document.

    Args:
        document: From `report_document`; parts that a run did not come to are left out.
        console: Decides about colours: rich drops them for NO_COLOR and for what is no terminal.
            Names from the model are printed as text, never as markup or escape sequences.
    """
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    rows = _placement(document["placement"])
    if document["accuracy"]:
        rows.append(("Against FP32", _accuracy(document["accuracy"])))
    if document["bundle"]:
        rows.append(("Bundle", _bundle(document["bundle"])))
    if document["refit"]:
        equal = document["refit"].get("bit_equal")
        words = {True: "outputs equal the unstripped build bit for bit", False: "outputs differ"}
        rows.append(("Refit", words.get(equal, "not compared")))
    rows += [(f"Built on {text.clean(one['board'])}", built_line(one)) for one in document["built"]]
    if document["board"]:
        board = document["board"]
        rows.append(("Board", f"{text.clean(board.get('name'))} ({text.clean(board.get('kind'))})"))
    bench = document["bench"] if (document["bench"] or {}).get("latency_ms") else None
    if bench and bench["clock"] != "cpu-measured":
        rows.append(("Latency", "\n".join(_bench(bench, document["verdict"]))))
    if document.get("baseline"):
        from edgekit.report._baseline import refused_words
        from edgekit.report._history import headline

        against = document["baseline"]
        if not (told := text.clean(refused_words(against))):
            label = text.clean(against["a"]["label"])
            told = f"{against['metric']} {headline(against)}\nagainst {label}"
        rows.append(("Baseline", told))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, Text(value))
    width = min(console.width, WIDTH)
    facts = [
        document["target"]["name"], text.mode_words(document), document["precision"].upper(),
        f"TensorRT {document['tensorrt']}",
    ]  # fmt: skip
    console.print()
    for one in document.get("answer") or [{"words": document["headline"], "ok": None}]:
        style = {True: "bold", False: "bold red"}.get(one["ok"], "bold")
        console.print(Text(text.clean(one["words"]), style=style), width=width)
    console.print()
    console.print(
        Panel(
            grid, title=Text(text.clean(document["name"]), style="bold"), title_align="left",
            subtitle=Text(text.clean(", ".join(fact for fact in facts if fact))),
            subtitle_align="right", width=width, padding=(0, 1),
        )
    )  # fmt: skip
    console.print()
    console.print(
        prediction_table(
            document["predicted"]["rows"],
            document["placement"]["objective"],
            document["predicted"].get("source", ""),
            document["predicted"].get("unknown_cost", 0),
        ),
        width=width,
    )
    console.print()
    for note in document["notes"]:
        console.print(Text(f"note: {text.clean(note)}", style="yellow"), width=width)
    if bench and bench["clock"] == "cpu-measured":
        times = "; ".join(_bench(bench, document["verdict"]))
        footnote = f"footnote, the reference backend on this CPU, not a board time: {times}"
        console.print(Text(text.clean(footnote), style="dim"), width=width)
    # a path is not broken over lines, so that it can be copied
    for name, path in document["files"].items():
        line = Text(f"{text.clean(name):<8}", style="dim").append(text.clean(path), style="not dim")
        console.print(line, soft_wrap=True)
