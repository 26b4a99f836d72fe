import dataclasses
import json

from edgekit.placement.plan import Constraints, Pin, Share
from edgekit.reports.comparison import with_baseline
from edgekit.reports.document import report_document
from edgekit.reports.html.verdict import with_earlier_comparison
from tests.benchmark import handmade_plan
from tests.reports import handmade_run
from tests.results.measurements import times
from tests.results.test_compare import result


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


def test_measured_and_predicted_times_never_share_an_object():
    bench = report_document(handmade_run.facts()).bench
    assert bench.clock == "cpu-measured"
    assert {"predicted", "samples_ms"}.isdisjoint(bench.to_json())
    assert sum(bench.histogram.counts) == 150


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
