"""Markdown says what the document says; nothing in a name is markup, and it fits a comment."""

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

from edgekit.benchmark.document import Bench
from edgekit.reports.document import report_document
from edgekit.reports.markdown import LIMIT, escaped, markdown, prose
from edgekit.reports.schema import parse_report
from tests.reports import handmade_run
from tests.results.measurements import bench_json, times

NASTY = (
    "a|b`c*d*\n# @user <img src=x onerror=alert(1)> [x](http://evil) #12 </details> \\| &amp; $y$"
)


class Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


def seen(text):
    parser = Seen()
    parser.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
    return parser


def test_a_nasty_name_is_read_as_it_is_and_is_nothing_else():
    found = seen(f"| a | b |\n|---|---|\n| {escaped(NASTY)} | x |")
    assert " ".join(NASTY.split()) in found.text
    assert {"img", "a", "em", "code", "h1"}.isdisjoint(found.tags)
    assert found.tags.count("td") == 2
    # a comment stands between what GitHub would take for a mention, a reference or a link
    assert not re.search(r"@\w|&#35;\d|//", escaped(NASTY))


def test_a_report_has_its_numbers_and_fits():
    document = report_document(handmade_run.facts())
    text = markdown(document)
    assert "Predicted for the board (not measured)" in text
    assert len(text) < LIMIT
    row = document.layers[0]
    rows = [row.model_copy(update={"name": f"{NASTY} {i}"}) for i in range(2000)]
    cut = markdown(document.model_copy(update={"layers": rows}))
    assert len(cut) <= LIMIT
    assert re.search(r"comment: [\d,]+ of 2,000 rows of Layers", cut)
    assert cut.count("<details>") == cut.count("</details>")


def test_nothing_is_escaped_that_is_no_markup():
    assert escaped("p99.9: 1.5 ms (median); 12 'x'") == "p99.9: 1.5 ms (median); 12 'x'"
    assert ":" not in escaped(":tada:")[:2]
    assert escaped("set bench.duration_s to 3") == "set bench.duration_s to 3"
    for name in ("_a_", "__a__", "a_ _b", "._x_.", "a__b"):
        assert {"em", "strong"}.isdisjoint(seen(escaped(name)).tags)
        assert name in seen(escaped(name)).text


def test_a_command_in_a_sentence_is_code():
    found = seen(prose("add nodes with `edgekit calibrate to-qdq <x>`, or *not*; one ` alone"))
    assert "code" in found.tags
    assert {"em", "x"}.isdisjoint(found.tags)
    assert (
        found.text.strip() == "add nodes with edgekit calibrate to-qdq <x>, or *not*; one ` alone"
    )


def test_a_measurement_has_its_percentiles_and_what_it_takes():
    sent = bench_json(times(99, 2.0, seed=1)) | {
        "cold": {"open_ms": 812.0, "first_ms": 14.31},
        "memory": {"peak_rss_bytes": 412 << 20},
        "energy": {
            "by_rail": {},
            "baseline": "idle",
            "window_s": [0.0, 3.0],
            "samples": 30,
            "idle_samples": 8,
            "clock": "board-measured",
            "total": {
                "mean_mw": 9e3,
                "median_mw": 9e3,
                "uj_per_inference": 24_200.0,
                "over_idle_uj": 9400.0,
                "rails": ["VIN"],
            },
        },
        "runtime": {"library": "x", "flags": {"streams": 2, "graph": True}},
    }
    sent["latency_ms"] |= {"p50": 2.0, "p90": 2.1, "p95": 2.1, "p999": 2.2}
    report = report_document(handmade_run.facts()).to_json()
    report["bench"] |= {key: sent[key] for key in ("latency_ms", "cold", "memory")}
    report["power"] = {"clock": "board-measured", "energy": sent["energy"]}
    document = Bench.model_validate(sent)
    for found in (seen(markdown(document)), seen(markdown(parse_report(report)))):
        for word in (
            "p50 (median)",
            "p90",
            "p95",
            "812 ms",
            "14.3 ms",
            "412 MiB",
            "24.2 mJ",
            "9.40 mJ",
            "thereof over idle",
        ):
            assert word in found.text
    text = seen(markdown(document)).text
    assert "flags.graph" in text
    assert "{" not in text
    assert "99 inferences are too few for p99 and p99.9" in text
    assert "fewer than 20 of the 99 inferences are slower" in text
    sent["energy"]["baseline"] = "floor"
    assert "thereof over its lowest" in seen(markdown(Bench.model_validate(sent))).text
