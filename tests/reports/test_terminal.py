import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from edgekit.errors import DataError
from edgekit.placement.plan import BuilderGroups, MeasuredPart, Reformat, Share
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.markdown import markdown
from edgekit.reports.schema import parse_report
from edgekit.reports.terminal.summary import summary_plan, terminal_summary
from edgekit.reports.text import change
from edgekit_device.protocol.codec import write
from tests.benchmark import handmade_plan
from tests.reports import handmade_run
from tests.reports.test_report_html import HOSTILE, hostile_facts


def printed(show, **options):
    out = io.StringIO()
    console = Console(file=out, width=80, **options)
    show(console)
    return out.getvalue()


def summary(facts, **options):
    document = report_document(facts)
    return printed(lambda console: terminal_summary(document, console), **options)


def test_summary_has_what_a_person_wants_in_eighty_columns():
    text = summary(handmade_run.facts())
    assert all(len(line) <= 80 for line in text.splitlines())
    for words in (
        "DLA0: 118 layers, 98.1 %",
        "GPU: 5 layers",
        "2 on the DLA",
        "local DRAM 64 MiB",
        "26.1 MiB, 403 KiB without weights",
        "cosine 0.99873",
        "footnote",
        "not a board time",
        "Predicted for the board (not measured)",
        "GPU alone",
        "TensorRT automatic DLA",
        "edgekit-out/resnet50/report.html",
        "edgekit-out/resnet50/trace.json",
        "edgekit-out/resnet50/resnet50.ekb",
    ):
        assert words in text, words


def test_the_prediction_says_which_quantity_each_column_compares():
    text = summary(handmade_run.facts())
    head = next(line for line in text.splitlines() if line.lstrip().startswith("placement"))
    assert head.split()[:2] == ["placement", "latency"]
    quantity = text.splitlines()[text.splitlines().index(head) - 1].strip()
    assert quantity == "GPU time"  # above "vs plan"
    assert "Compared with the GPU alone" in text


def test_a_percentile_of_few_frames_is_left_out_and_nan_is_said():
    facts = handmade_run.facts()
    few = {**facts.bench.to_json(), "iterations": 12}
    many = {**facts.bench.to_json(), "iterations": 2000}
    assert "p99" in summary(handmade_run.facts(bench=many))
    assert "p99" not in summary(handmade_run.facts(bench=few))
    assert "p99" not in summary(facts)  # of 150 inferences two are slower
    accuracy = {
        **facts.accuracy.to_json(),
        "computed": "emulated on a CPU",
        "nonfinite": [
            {
                "output": "y",
                "what": "NaN",
                "inputs": 1,
                "since": None,
                "told": "output 'y' has NaN for 1 of 16 inputs",
            }
        ],
    }
    document = report_document(handmade_run.facts(accuracy=accuracy))
    text = printed(lambda console: terminal_summary(document, console))
    for found in (text, markdown(document), render_html(document).replace("&#39;", "'")):
        assert "emulated on a CPU" in found
        assert "output 'y' has NaN for 1 of 16 inputs" in found


def test_channel_groups_and_scores_are_data_and_shown_everywhere():
    facts = handmade_run.facts()
    groups = [
        {
            "output": "dets",
            "channels": [[0, 3]],
            "range": 640.0,
            "snr_db": 41.26,
            "cosine": 0.9999,
            "worst": {"channel": 2, "snr_db": 39.04},
            "collapsed": False,
        },
        {
            "output": "dets",
            "channels": [[4, 83], [90, 90]],
            "range": 0.97,
            "snr_db": 24.13,
            "cosine": 0.998,
            "worst": {"channel": 57, "snr_db": 18.72},
            "collapsed": False,
        },
    ]
    scores = [{"output": "dets", "above": 314, "kept": 309}]
    accuracy = {**facts.accuracy.to_json(), "groups": groups, "scores": scores, "failures": []}
    document = report_document(handmade_run.facts(accuracy=accuracy))
    assert [one.snr_db for one in document.accuracy.groups] == [41.26, 24.13]
    text = " ".join(printed(lambda console: terminal_summary(document, console)).split())
    html = render_html(document).replace("&#39;", "'")
    # the panel has the worst, the page has all of them
    for words in ("channels 4 to 83, 90", "24.1 dB", "18.7 dB", "309 of 314 scores above 0.25"):
        assert words in text.replace("│ │ ", ""), words
    for words in (
        "<td>0 to 3</td>",
        "41.3 dB",
        "<td>4 to 83, 90</td>",
        "57 (18.7 dB)",
        "309 of 314 scores above 0.25",
    ):
        assert words in html, words
    assert "309 of 314" in markdown(document)
    accuracy["groups"] = [{**groups[0], "snr_db": "high"}]
    with pytest.raises(DataError, match=r"accuracy\.groups\[0\]\.snr_db"):
        parse_report({**document.to_json(), "accuracy": accuracy})


def test_a_cosine_of_what_does_not_vary_is_no_headline():
    facts = handmade_run.facts()
    message = "output 'y' differs by 0.1 % of its size between the inputs"
    accuracy = {
        **facts.accuracy.to_json(),
        "cosine": 1.0,
        "constant": [{"output": "y", "variation": 0.001, "told": message}],
        "segments": [
            {**write(one), "constant": one.segment > 2} for one in facts.accuracy.segments
        ],
    }
    document = report_document(handmade_run.facts(accuracy=accuracy))
    text = printed(lambda console: terminal_summary(document, console))
    assert "differs by 0.1 %" in text
    assert "cosine 1.0" not in text
    assert "after segment 3 (DLA0): same output for all inputs" in text
    page = render_html(document)
    (tile,) = re.findall(r"Cosine to FP32.{,300}", page, re.S)
    assert "1.00000" not in tile
    assert "all inputs give the same output" in tile
    assert page.count('class="soft">same output for all inputs<') == 2
    for found in (markdown(document), page.replace("&#39;", "'")):
        assert message in found
        assert "1.00000" not in found
        # a gate over figures that say nothing was not judged
        assert "not known" in found
    (gate,) = (one for one in document.verdict.gates if one.gate == "accuracy")
    assert (gate.passed, gate.found) == (None, None)
    assert "Gate: cosine of at least 0.99: not judged." in page
    assert "✅" not in markdown(document).split("Cosine to FP32")[1].split("\n")[0]


def test_random_weights_are_said_with_every_figure_of_the_accuracy():
    facts = handmade_run.facts()
    data = "random weights and 16 synthetic images, seed 0"
    document = report_document(
        handmade_run.facts(accuracy={**facts.accuracy.to_json(), "data": data})
    )
    assert data in " ".join(
        summary(handmade_run.facts(accuracy={**facts.accuracy.to_json(), "data": data})).split()
    )
    page = render_html(document)
    (tile,) = re.findall(r"<dt>Cosine to FP32.{,300}", page, re.S)
    (gate,) = re.findall(r"</span> Accuracy.{,300}", page, re.S)
    (row,) = (one for one in markdown(document).splitlines() if "Cosine to FP32" in one)
    for found in (tile, gate, row):
        assert "random weights" in found


def test_a_core_without_work_has_no_row():
    assert "DLA0" in summary(handmade_run.facts())
    assert "DLA1" not in summary(handmade_run.facts())


def test_what_was_measured_of_another_release_says_which():
    facts = handmade_run.facts()
    back = {"release": "000002-bbb", "at": "2026-01-02T03:04:05Z", "reason": "false alarms"}
    bench = {
        **facts.bench.to_json(),
        "taken_back": back,
        "environment": {"release": "000001-aaa"},
        "clock": "board-measured",
    }
    document = report_document(handmade_run.facts(bench=bench))
    page, shown = render_html(document), summary(handmade_run.facts(bench=bench))
    section = page.split('id="measurement"')[1].split("</section>")[0]
    head = page.split("<main")[0]
    panel = "".join(shown.split("╭")[1].split())
    for place in (head, section, markdown(document), shown, document.headline):
        for word in ("000001-aaa", "000002-bbb", "false alarms"):
            assert word in " ".join(place.split())
    assert "000001-aaa" in panel
    assert "for another release" in document.answer[1].words
    (tile,) = re.findall(r"<dt>Measured latency.{,200}", page, re.S)
    assert "for another release" in tile
    assert "000001-aaa" not in render_html(report_document(facts))


def test_colours_only_on_a_terminal_and_without_no_color(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" not in summary(handmade_run.facts())
    assert "\x1b[33m" in summary(handmade_run.facts(), force_terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in summary(handmade_run.facts(), force_terminal=True)


def test_names_from_the_model_are_neither_markup_nor_escapes():
    text = summary(handmade_run.facts(name="[red]net[/red]\x1b]0;title\x07"))
    assert "[red]net[/red]" in text
    assert "\x1b" not in text
    assert "\x1b" not in summary(hostile_facts())
    assert HOSTILE[:20] in summary(hostile_facts())


def test_long_paths_are_not_broken():
    path = "edgekit-out/" + "very-long-name/" * 12 + "report.html"
    assert path in summary(handmade_run.facts(files={"report": path}))


def test_a_run_that_stopped_early_has_a_summary():
    text = summary(
        handmade_run.facts(accuracy=None, bundle=None, refit=None, bench=None, board=None)
    )
    assert "Predicted for the board" in text
    assert "CPU latency" not in text


@pytest.mark.parametrize("variants", [1, 2])
def test_plan_summary(variants):
    text = printed(lambda c: c.print(summary_plan(handmade_plan.plan(variants))))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "predicted; proved optimal" in text
    assert ("DLA1" in text) == (variants == 2)
    assert "TensorRT automatic DLA" in text
    assert "+36.5 %" in text  # 131 against 96 µs of GPU time
    assert "not possible" in text


def test_a_table_says_that_layers_of_unknown_cost_are_in_no_figure():
    plan = replace(handmade_plan.plan(), unknown_cost=("a", "b"))
    text = " ".join(printed(lambda c: c.print(summary_plan(plan))).split())
    assert "Predicted for the board (not measured), not counting 2 layers of unknown cost" in text


def test_plan_summary_reports_bands_measured_parts_and_when_the_gpu_is_as_good():
    plan = replace(
        handmade_plan.plan(),
        objective="latency",
        bands={"latency_us": (500.0, 3000.0)},
        measured=MeasuredPart(
            "build.log", "log", 0.25, {"gpu": 0.25, "dla": 0.25}, 1.0, {}, 9, ("a", "b"), ()
        ),
        reformats=(Reformat("x", "fp32:LINEAR", "int8:CHW32", 31.5, "measured"),),
        builder=BuilderGroups({"a": "DLA", "b": "GPU"}),
    )
    text = printed(lambda c: c.print(summary_plan(plan)))
    for words in (
        "latency 2.41 ms (80 % band: 500 µs to 3.00 ms), 25.0 % measured by",
        "within the prediction error",
        "2 rows of the profile matched no layer",
        "31.5 µs  fp32:LINEAR -> int8:CHW32  x, measured",
        "device type of 1 layer to DLA and of 1 to GPU",
        "-74.4 %",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("latency", "reaches 2.63 ms, the GPU alone 618 µs"),
        ("throughput", "reaches 380 per second, the GPU alone 1,620 per second"),
        ("period", "(80 % band: 500 µs to 1.00 ms)"),
    ],
)
def test_plan_summary_of_the_gpu_alone(objective, words):
    plan = handmade_plan.plan()
    layers = tuple(replace(layer, device="GPU") for layer in plan.layers)
    alone = plan.baselines["gpu_only"]
    plan = replace(
        plan,
        objective=objective,
        layers=layers,
        plans=(Share(1.0, layers),),
        loadables=(),
        predicted=alone,
        bands={"throughput_qps": (1000.0, 2000.0)},
    )
    text = " ".join(printed(lambda c: c.print(summary_plan(plan))).split())
    assert "GPU alone: using the DLA does not improve" in text
    assert words in text


def test_a_plan_without_loadables_in_a_mix_is_not_said_to_be_built_from_some():
    plan = handmade_plan.plan()
    parts = []
    for layers in (plan.layers, tuple(replace(x, device="GPU") for x in plan.layers)):
        types = {x.name: "GPU" if x.device == "GPU" else "DLA" for x in layers}
        parts.append(Share(0.5, layers, 0, plan.predicted, builder=BuilderGroups(types)))
    plan = replace(plan, plans=tuple(parts), builder=parts[0].builder)
    text = " ".join(printed(lambda c: c.print(summary_plan(plan))).split())
    assert "to build plan 1: set the device type" in text
    assert "plan 2 runs on the GPU alone" in text
    assert "to build plan 2" not in text


def test_plan_summary_counts_all_that_a_device_does_and_marks_what_breaks_requests():
    plan = handmade_plan.plan()
    first = replace(plan.loadables[0], launch_us=1e6, border_us=2e6)
    part = replace(plan.plans[0], reformats=(Reformat("x", "a", "b", 7e6),))
    plan = replace(
        plan,
        loadables=(first, *plan.loadables[1:]),
        plans=(part,),
        baselines_keep={"gpu_only": False, "tensorrt_auto": True},
    )
    text = printed(lambda c: c.print(summary_plan(plan)))
    busy = {
        line.split()[0]: line for line in text.partition("Predicted")[0].splitlines()[4:7] if line
    }
    assert "7.00 s" in busy["GPU"]
    assert "reformats and launches" not in text
    assert "3.00 s" in busy["DLA0"]
    assert "GPU alone *" in text
    assert "automatic DLA *" not in text
    assert "* breaks the limits" in text
    alone = replace(part, layers=tuple(replace(x, device="GPU") for x in part.layers))
    on_dla = replace(part, layers=tuple(replace(x, device="DLA0") for x in part.layers))
    text = printed(lambda c: c.print(summary_plan(replace(plan, plans=(on_dla,)))))
    assert "7.00 s (reformats and launches)" in text
    plan = replace(plan, plans=(alone,), kept_off=("max_transitions 0",))
    text = printed(lambda c: c.print(summary_plan(plan)))
    assert "GPU alone: max_transitions 0 keeps everything off the DLA" in text


@pytest.mark.parametrize(
    ("percent", "shown"),
    [
        (2310.4, "+2,310 %"),
        (-47.71, "-47.7 %"),
        (1.234, "+1.23 %"),
        (-0.0512, "-0.0512 %"),
        (99.96, "+100 %"),
    ],
)
def test_changes_are_readable(percent, shown):
    assert change(percent) == shown


def test_summary_of_plans_that_share_frames():
    text = summary(handmade_run.facts(plan=handmade_plan.plan(2)))
    placement = text[text.index("Placement") : text.index("Loadables")]
    found = re.findall(r"(\S+ %) of the frames|(GPU|DLA\d): (\d+ layers), busy \S+ .s", placement)
    assert [share or device for share, device, _ in found] == [
        "50.0 %",
        "GPU",
        "DLA0",
        "50.0 %",
        "GPU",
        "DLA1",
    ]
    assert found[1][2:] == found[4][2:]
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_comparison_with_a_baseline_is_reported():
    from edgekit.reports.comparison import with_baseline
    from tests.results.measurements import times
    from tests.results.test_compare import STEADY, result

    a, b = (result(times(99, level, seed=1), f"#{level}") for level in (2.0, 2.5))
    document = with_baseline(report_document(handmade_run.facts()), [a], [b], STEADY)
    text = " ".join(printed(lambda console: terminal_summary(document, console)).split())
    assert "latency.median slower, +25" in text
    assert "#2.0" in text
