import dataclasses
import json

import pytest

from edgekit.network.lowering.places import NodePlace
from edgekit.placement.plan import Constraints, Pin, Share
from edgekit.reports import text
from edgekit.reports.comparison import with_baseline
from edgekit.reports.document import report_document
from edgekit.reports.html.page import render_html
from edgekit.reports.html.verdict import with_earlier_comparison
from edgekit.reports.markdown import markdown
from edgekit.reports.node_notes import node_notes
from edgekit.reports.schema import MeasuredTime, Whole, parse_report
from edgekit.targets.loader import get
from tests.benchmark import handmade_plan
from tests.reports import handmade_run
from tests.results.measurements import times
from tests.results.test_compare import result


def test_document_is_strict_json_with_its_schema():
    document = report_document(handmade_run.facts()).to_json()
    assert document["schema"] == "edgekit.report/1"
    assert parse_report(json.loads(json.dumps(document, allow_nan=False))).to_json() == document


def test_layers_and_macs_by_device_add_up():
    document = report_document(handmade_run.facts())
    placement = document.placement
    devices = {row.device: row for row in placement.devices}
    assert list(devices) == ["GPU", "DLA0"]  # the other core has no work
    assert sum(row.layers for row in devices.values()) == placement.layers == 123
    assert sum(row.macs for row in devices.values()) == placement.macs
    assert devices["GPU"].layers == 5
    assert placement.dla_macs_fraction == devices["DLA0"].macs_fraction
    assert "118 of 123 layers" in document.headline
    assert "98.1 %" in document.headline


def test_predictions_stand_next_to_their_baselines_and_are_called_so():
    predicted = report_document(handmade_run.facts()).predicted
    assert predicted.clock == "predicted"
    rows = {row.key: row for row in predicted.rows}
    assert list(rows) == ["plan", "gpu_only", "tensorrt_auto", "best_cut"]
    assert rows["gpu_only"].latency_ratio == 618.0 / 2412.0
    assert rows["best_cut"].latency_us is None


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("gpu_time", "96 % less GPU time, "),
        ("energy", "40 % less energy, "),
        ("throughput", "2.4x the frames per second, "),
        ("latency", "20 % more latency, "),
    ],
)
def test_what_the_objective_brings_is_said_against_the_gpu_alone(objective, said):
    facts = handmade_run.facts()
    figures = {"latency_us": 1000.0, "throughput_qps": 1000.0, "energy_uj": 200.0, "gpu_us": 1e3}
    own = {"latency_us": 1200.0, "throughput_qps": 2400.0, "energy_uj": 120.0, "gpu_us": 40.0}
    plan = dataclasses.replace(
        facts.plan,
        objective=objective,
        predicted=dataclasses.replace(facts.plan.predicted, **own),
        baselines={"gpu_only": dataclasses.replace(facts.plan.predicted, **figures)},
    )
    document = report_document(dataclasses.replace(facts, plan=plan))
    brings = document.predicted.advantage
    assert brings.startswith(f"Compared with the GPU alone: {said}")
    assert brings.endswith("(predicted).")
    assert all(brings.count(word) == 1 for word in ("GPU time", "less energy", "more latency"))
    for page in (markdown(document), render_html(document)):
        assert brings in page
    same = dataclasses.replace(plan, predicted=plan.baselines["gpu_only"])
    assert not report_document(dataclasses.replace(facts, plan=same)).predicted.advantage


def test_a_layer_row_joins_plan_network_and_verdict():
    rows = {row.name: row for row in report_document(handmade_run.facts()).layers}
    prob = rows["prob"]
    assert (prob.device, prob.precision, prob.kind) == ("GPU", "fp16", "SOFTMAX")
    assert prob.dla_ok is False
    assert prob.reasons[0].rule == "softmax.orin-axis"
    assert rows["gap"].certainty == "disputed"


def test_reasons_are_grouped_by_rule_most_frequent_first():
    facts = handmade_run.facts()
    verdicts = dict(facts.judgement.verdicts)
    verdicts["relu1"] = dataclasses.replace(
        verdicts["relu1"], ok=False, reasons=(handmade_run.SHUFFLE,)
    )
    judgement = dataclasses.replace(facts.judgement, verdicts=verdicts)
    groups = report_document(handmade_run.facts(judgement=judgement)).why_not
    assert [(g.rule, g.count) for g in groups] == [
        ("shuffle.flatten", 2),
        ("softmax.orin-axis", 1),
    ]
    assert [layer.name for layer in groups[0].layers] == ["relu1", "flatten"]


def test_measured_and_predicted_times_never_share_an_object():
    bench = report_document(handmade_run.facts()).bench
    assert bench.clock == "cpu-measured"
    assert {"predicted", "samples_ms"}.isdisjoint(bench.to_json())
    assert sum(bench.histogram.counts) == 150


def test_a_target_without_dla_is_a_full_answer():
    plan = handmade_plan.plan()
    layers = tuple(dataclasses.replace(p, device="GPU", segment=0) for p in plan.layers)
    plan = dataclasses.replace(
        plan, layers=layers, plans=(Share(1.0, layers),), loadables=(), pools={}, transitions=0
    )
    document = report_document(handmade_run.facts(plan=plan, target=get("jetson-orin-nano-8gb")))
    assert [row.device for row in document.placement.devices] == ["GPU"]
    assert "has no DLA" in document.headline
    assert document.timeline.tracks == ["GPU"]


def test_a_note_of_run_and_plan_is_reported_once():
    plan = dataclasses.replace(handmade_plan.plan(), notes=("same", "of the plan"))
    document = report_document(handmade_run.facts(plan=plan, notes=("of the run", "same")))
    assert document.notes == ["same", "of the plan", "of the run"]


def test_nothing_on_the_dla_although_it_could():
    plan = handmade_plan.plan()
    layers = tuple(dataclasses.replace(p, device="GPU", segment=0) for p in plan.layers)
    plan = dataclasses.replace(plan, layers=layers, plans=(Share(1.0, layers),), loadables=())
    headline = report_document(handmade_run.facts(plan=plan)).headline
    assert "all 123 layers run on the GPU; 121 could run on a DLA" in headline


def test_a_run_that_stopped_early_still_has_a_document():
    facts = handmade_run.facts(
        scales=None,
        accuracy=None,
        bundle=None,
        refit=None,
        bench=None,
        board=None,
        steps=(),
        rewrites=(),
        files={},
        environment={},
        notes=(),
    )
    document = report_document(facts)
    assert document.accuracy is None
    assert document.bench is None
    assert document.notes == []


def layer_slice(name, us, frame, device="DLA0", **known):
    args = {
        "clock": "board-measured",
        "segment": 1,
        "device": device,
        "measured_us": us,
        "frame": frame,
        **known,
    }
    return {
        "ph": "X",
        "cat": "layer",
        "pid": 1,
        "tid": 1,
        "ts": 1000.0 * frame + 10.0,
        "dur": us,
        "name": name,
        "args": args,
    }


def hybrid_facts():
    """Two frames of an engine: a layer in two pieces, a loadable, and a copy that is no layer's."""
    rows = report_document(handmade_run.facts()).layers
    alone, first, last = rows[0].name, rows[3].name, rows[5].name
    members = [row.name for row in rows[3:6]]
    events = []
    for frame in (0, 1):
        args = {"clock": "board-measured", "segment": 1, "frame": frame}
        events += [
            {
                "ph": "X",
                "cat": "segment",
                "pid": 1,
                "tid": 1,
                "ts": 1000.0 * frame,
                "dur": 500.0,
                "name": "segment 1",
                "args": args,
            },
            layer_slice(alone, 10.0, frame, "GPU", layer=alone),
            layer_slice(alone, 20.0 + 4 * frame, frame, "GPU", layer=alone),
            layer_slice("x to nvm", 7.0, frame, "GPU"),
            layer_slice(
                f"{{ForeignNode[{first}...{last}]}}",
                105.0,
                frame,
                layer=" + ".join(members),
                layers=members,
            ),
        ]
    facts = handmade_run.facts(
        trace={
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {"schema": "edgekit.trace/1"},
        }
    )
    return dataclasses.replace(
        facts, bench=facts.bench.model_copy(update={"clock": "board-measured"})
    )


def test_a_loadables_time_is_reported_once_and_its_layers_say_where():
    document = report_document(hybrid_facts())
    rows = {row.name: row for row in document.layers}
    alone = document.layers[0].name
    # the pieces of a frame are one time, and frames are averaged
    assert rows[alone].measured == MeasuredTime(clock="board-measured", us=32.0)
    (loadable,) = document.measured_parts  # not the copy, which is of no layer
    assert (loadable.us, loadable.device, len(loadable.layers)) == (105.0, "DLA0", 3)
    for name in loadable.layers:
        assert rows[name].measured is None
        assert rows[name].within == Whole(
            name=loadable.name, clock="board-measured", us=105.0, layers=3
        )
    page, paper = render_html(document), markdown(document)
    assert page.count('<a href="#loadable-1">in loadable 1, 105 µs together</a>') == 3
    assert page.count('id="loadable-1"') == page.count(f"{loadable.name}</span>") == 1
    assert "Timed as a whole" in page
    assert paper.count("105 µs together") == 3
    layers = handmade_run.facts().plan.layers
    notes = node_notes(layers, {"n": NodePlace((loadable.layers[0],))}, document.layers)
    assert notes["n"]["within"] == (
        f"{loadable.name}: 105.00 µs, board-measured, 3 layers together"
    )
    assert notes["n"]["time"].endswith("predicted")


def test_a_comparison_stays_with_its_measurement(tmp_path):
    document, path = report_document(handmade_run.facts()), tmp_path / "report.json"
    assert with_earlier_comparison(document, path) == document
    a, b = (result(times(99, level, seed=1), f"#{level}") for level in (2.0, 2.5))
    compared = with_baseline(document, [a], [b])
    written = compared.to_json()
    path.write_text(json.dumps(written), "utf-8")
    assert with_earlier_comparison(document, path) == compared
    other = document.model_copy(
        update={"bench": document.bench.model_copy(update={"throughput_qps": 1.0})}
    )
    assert with_earlier_comparison(other, path) == other
    for damaged in ("{", json.dumps({**written, "baseline": {"ratio": 3}})):
        path.write_text(damaged, "utf-8")
        assert with_earlier_comparison(document, path) == document


def test_the_hosts_phase_is_not_called_the_whole():
    bench = handmade_run.facts().bench.to_json()
    bench["phases_ms"] = {"host": dict.fromkeys(("mean", "median", "max"), 0.268)}
    page = render_html(report_document(handmade_run.facts(bench=bench)))
    assert "host work" in page
    assert "the whole, on the host" not in page


def answers(**changes):
    document = report_document(handmade_run.facts(**changes))
    assert document.headline == " ".join(one.words for one in document.answer)
    return {one.question: one for one in document.answer}


def test_the_answer_says_whether_it_fits_how_fast_it_is_and_whether_it_is_accurate():
    found = answers()
    assert list(found) == ["fit", "speed", "accuracy"]
    plan = handmade_plan.plan()
    assert found["fit"].ok is True
    assert found["speed"].clock == "predicted"
    assert "Predicted latency 2.41 ms" in found["speed"].words
    alone = plan.baselines["gpu_only"]
    assert f"GPU alone {text.microseconds(alone.latency_us)}" in found["speed"].words
    assert found["accuracy"].ok is True
    assert "cosine 0.99873" in found["accuracy"].words
    # a board's own time is the answer, and its verdict goes with it
    bench = {**handmade_run.facts().bench.to_json(), "clock": "board-measured"}
    bench["verdict"] = {"status": "INVALID", "reasons": [{"code": "x", "message": "too hot"}]}
    found = answers(bench=bench, accuracy=None)
    assert found["speed"].ok is False
    assert "measured on the board, INVALID: too hot" in found["speed"].words
    assert "not compared" in found["accuracy"].words


@pytest.mark.parametrize(
    ("changes", "question", "words"),
    [
        (
            {"steps": ({"name": "build", "status": "failed", "seconds": 1.0, "detail": ""},)},
            "fit",
            "The run failed in step build",
        ),
        (
            {"accuracy": {"cosine": 0.5, "metric": "cosine", "min": 0.99, "passed": False}},
            "accuracy",
            "Accuracy fails",
        ),
    ],
)
def test_an_answer_of_no_says_so(changes, question, words):
    found = answers(**changes)[question]
    assert found.ok is False
    assert words in found.words


def test_a_loadable_beyond_its_memory_does_not_fit():
    plan = handmade_plan.plan()
    plan = dataclasses.replace(plan, constraints=Constraints(pools={"local_dram": 4096}))
    found = answers(plan=plan)["fit"]
    assert found.ok is False
    assert "Does not fit the DLA: a loadable needs" in found.words


def test_layers_that_a_dla_could_run_have_a_reason_for_the_gpu():
    plan = handmade_plan.plan()
    layers = tuple(dataclasses.replace(p, device="GPU", segment=0) for p in plan.layers)
    for changes, rule in (
        ({"constraints": Constraints(pins=(Pin("*", "GPU"),))}, "pinned to the GPU"),
        ({"constraints": Constraints(dla_cores=())}, "no DLA core is allowed"),
        ({"precision": "fp32"}, "FP32 runs only on the GPU"),
        ({"objective": "gpu_time"}, ""),
    ):
        other = dataclasses.replace(
            plan, layers=layers, plans=(Share(1.0, layers),), loadables=(), **changes
        )
        document = report_document(handmade_run.facts(plan=other))
        able = {row.name for row in document.layers if row.dla_ok}
        shown = [one for group in document.why_gpu for one in group.layers]
        assert {one.name for one in shown} == able
        assert all(bool(row.on_gpu) == (row.name in able) for row in document.layers)
        if rule:
            assert [group.rule for group in document.why_gpu] == [rule]
    # where a layer is on a DLA there is nothing to answer
    rows = report_document(handmade_run.facts()).layers
    assert all((row.on_gpu is None) == (row.device != "GPU" or not row.dla_ok) for row in rows)


def test_layers_have_a_type_and_the_shape_that_they_write():
    network = handmade_plan.network()
    for row, layer in zip(
        report_document(handmade_run.facts()).layers, network.layers, strict=True
    ):
        assert row.op == layer.op
        assert row.shape == [
            list(network.tensors[name].shape) for name in layer.outputs if name in network.tensors
        ]


def test_notes_are_grouped_by_what_they_are_about():
    plan = dataclasses.replace(handmade_plan.plan(), notes=("of the plan",))
    document = report_document(
        handmade_run.facts(
            plan=plan,
            notes=("a scale", "of the plan", "else"),
            note_groups={"accuracy": ["a scale"]},
        )
    )
    groups = document.note_groups
    assert groups["plan"] == ["of the plan"]
    assert groups["accuracy"] == ["a scale"]
    assert groups["run"] == ["else"]
    assert document.notes == [note for notes in groups.values() for note in notes]
