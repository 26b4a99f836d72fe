"""Rewrites are left out where the best plan is predicted to be worse with them, and only there."""

from dataclasses import replace

import pytest

import edgekit
from edgekit.config.loader import parse_config
from edgekit.errors import GateError, UsageError
from edgekit.network.lowering.layers import layers
from edgekit.network.writing import save
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import variant
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.questions import plan_table, what_if
from edgekit.pipeline.steps.load import source
from edgekit.pipeline.steps.plan import query
from edgekit.pipeline.steps.rewrite import model, used_rewrites
from edgekit.placement.forecast import forecast
from edgekit.placement.placing import PlacementQuery
from edgekit.placement.plan import plan_value
from edgekit.placement.without_rewrites import better_without
from edgekit.rewriting.provenance.record import read_record
from tests.rewriting.real_nets import unet

ORIN = "jetson-agx-orin-64gb"
# what deconv-padding makes of a deconvolution, which the GPU runs as a layer of its own
SLICE = "convtranspose_12:slice"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A U-Net: in FP16 the GPU alone is best, and the form for the DLA is slower there."""
    path = tmp_path_factory.mktemp("left-out")
    save(unet(), path / "unet.onnx")
    return path


@pytest.fixture
def opened(folder):
    """Opens configurations that share one cache."""

    def one(placement="objective: latency", extra=""):
        text = (
            f"version: 1\nname: net\nmodel: {{onnx: unet.onnx}}\ntarget: {ORIN}\nprecision: fp16\n"
            f"placement: {{{placement}}}\n{extra}"
        )
        config = parse_config(text, "net.yaml", folder)
        return Pipeline(config, out=folder / "out", cache=Cache(folder / "cache"))

    return one


ALWAYS = "rewrite: {always: true}\n"


def test_where_the_plan_is_worse_with_them_it_is_made_without_and_says_so(opened):
    with_them = opened(extra=ALWAYS).plan()
    pipeline = opened()
    plan = pipeline.plan()
    context = pipeline.context
    assert model(context) is source(context)
    assert used_rewrites(context).applied == ()
    assert used_rewrites(context).record.rewrites == ()
    assert plan_value(plan) < plan_value(with_them)
    reported = [note for note in plan.notes if "Rewrites not used" in note]
    assert len(reported) == 1
    assert f"{plan_value(with_them):,.4g} µs with them" in reported[0]
    assert f"{plan_value(plan):,.4g} µs without (predicted)" in reported[0]
    assert "rewrite.always" in reported[0]
    assert plan.to_json()["notes"] == list(plan.notes)


def test_always_uses_them_and_rewrite_itself_rewrites(opened, folder):
    always = opened(extra=ALWAYS)
    notes = always.plan().notes
    assert not any("not used" in note for note in notes)
    names = [item.rewrite for item in used_rewrites(always.context).applied]
    assert set(names) == {"deconv-padding"}
    assert read_record(model(always.context)) is not None
    document = opened().rewrite(folder / "out.onnx").to_json()
    assert [item["rewrite"] for item in document["rewrites"]] == names
    assert document["notes"] == []
    assert document["after"]["loadables"] <= document["before"]["loadables"]
    assert (folder / "out.onnx").is_file()


def test_other_objectives_have_other_answers(opened):
    used = {}
    for objective in ("latency", "throughput", "gpu_time", "energy"):
        pipeline = opened(f"objective: {objective}")
        plan = pipeline.plan()
        used[objective] = bool(used_rewrites(pipeline.context).applied)
        forced = plan_value(opened(f"objective: {objective}", ALWAYS).plan())
        # never worse than with them, whichever way round the objective counts
        if objective == "throughput":
            assert plan_value(plan) >= forced
        else:
            assert plan_value(plan) <= forced
    assert used == {"latency": False, "throughput": True, "gpu_time": True, "energy": True}


def test_of_throughput_more_is_better(opened):
    constraint = 'objective: throughput, pin: [{layers: "*", device: GPU}]'
    pipeline = opened(constraint)
    plan, forced = pipeline.plan(), opened(constraint, ALWAYS).plan()
    assert used_rewrites(pipeline.context).applied == ()
    assert plan_value(plan) > plan_value(forced)
    assert any("frames/s without" in note for note in plan.notes)


def test_what_is_retained_of_one_constraint_is_not_used_for_another(opened):
    """The rewriting is one for all wishes; whether it is used is told apart, read back too."""

    def seen(pipeline):
        notes = pipeline.plan().notes
        used = used_rewrites(pipeline.context).applied
        return len(used), sum("not used" in note for note in notes)

    for _ in range(2):
        pipeline = opened()
        assert seen(pipeline) == (0, 1)
        (step,) = [one for one in pipeline.log.done if one.name == "rewrite"]
        assert "not used: the plan is better without" in step.detail  # as the note says
        assert seen(opened(extra=ALWAYS)) == (2, 0)
        assert seen(opened("objective: throughput")) == (2, 0)
        document = opened().rewrite().to_json()
        assert len(document["rewrites"]) == 2
    again, other = opened().context, opened("objective: latency, max_loadables: 7").context
    assert used_rewrites(again).applied == used_rewrites(other).applied == ()
    assert again.session.fresh == set()
    assert other.session.fresh == {"without rewrites"}


def test_another_objective_in_what_if_and_table_is_planned_as_on_its_own(opened):
    latency, throughput = opened(), opened("objective: throughput")
    own = plan_value(throughput.plan())
    for first in (latency, throughput):
        document = what_if(first, "objective throughput")
        assert document.after.value == pytest.approx(own, rel=1e-9)
        other = variant(first.context, placement={"objective": "latency"})
        assert used_rewrites(other).applied == ()
    rows = {row.objective: row for row in plan_table(throughput).rows}
    assert rows["latency"].latency_us == pytest.approx(plan_value(latency.plan()), rel=1e-9)
    assert rows["throughput"].throughput_qps == pytest.approx(own, rel=1e-9)


def test_a_pin_of_what_only_the_rewritten_network_has_keeps_them(opened):
    assert SLICE not in {layer.name for layer in layers(unet()).layers}
    pipeline = opened(f'objective: latency, pin: [{{layers: "{SLICE}", device: GPU}}]')
    plan = pipeline.plan()
    assert len(used_rewrites(pipeline.context).applied) == 2
    assert {layer.name: layer.device for layer in plan.layers}[SLICE] == "GPU"
    assert not any("not used" in note for note in plan.notes)
    with pytest.raises(UsageError) as caught:
        opened("objective: latency, pin: [{layers: nothing, device: GPU}]").plan()
    assert caught.value.code == "plan.pin"


def test_a_bound_that_only_the_network_as_it_came_keeps(opened):
    between = [plan_value(opened(extra=extra).plan()) for extra in ("", ALWAYS)]
    assert between[0] < between[1]
    constraint = f"objective: throughput, bounds: {{latency_us: {sum(between) / 2}}}"
    pipeline = opened(constraint)
    plan = pipeline.plan()
    assert used_rewrites(pipeline.context).applied == ()
    assert any("planning with them fails" in note for note in plan.notes)
    with pytest.raises(GateError) as caught:
        opened(constraint, ALWAYS).plan()
    assert caught.value.code == "plan.infeasible"


def test_a_constraint_that_only_the_rewritten_network_keeps(opened):
    """Without the GPU nothing but the rewritten network is planned, though it is slower there."""
    pipeline = opened("objective: latency, gpu: false")
    assert {layer.device for layer in pipeline.plan().layers} == {"DLA0"}
    assert len(used_rewrites(pipeline.context).applied) == 2
    with pytest.raises(GateError):
        opened("objective: latency, gpu: false", "rewrite: {enable: none}\n").plan()


def test_it_is_planned_twice_only_where_the_gpu_got_slower(opened, monkeypatch):
    pipeline = opened()
    context = pipeline.context
    before = query(variant(context, rewrite={"enable": "none"}))
    after = query(replace(context, weighs=False))
    alone = [forecast(a.network, a.judgement, a.target).gpu_only_us for a in (before, after)]
    assert alone[0] < alone[1]
    requested = []
    plan = PlacementQuery.plan
    monkeypatch.setattr(
        PlacementQuery, "plan", lambda *a, **k: requested.append(a[0]) or plan(*a, **k)
    )
    assert better_without(before, after)
    assert len(requested) == 2
    # the other way round the GPU gets faster, and nothing has to be weighed
    assert better_without(after, before) == ""
    assert better_without(before, before) == ""
    assert len(requested) == 2


@pytest.mark.parametrize("used", [True, False])
def test_a_plan_of_another_number_of_layers_than_a_check_says_why(folder, used):
    path = folder / "unet.onnx"
    rewrites = {"always": True} if used else {"enable": "none"}
    plan = edgekit.plan(path, target=ORIN, precision="fp16", rewrite=rewrites)
    checked = edgekit.check(path, target=ORIN, precision="fp16").to_json()["summary"]["layers"]
    reported = f"{len(plan.layers)} layers placed; check counts {checked}: the rewrites make"
    assert (len(plan.layers) != checked) is used
    assert any(reported in note for note in plan.notes) is used


def test_baselines_are_those_of_the_network_as_given(folder):
    path = folder / "unet.onnx"
    options = {"target": ORIN, "precision": "fp16"}
    given = edgekit.plan(path, rewrite={"enable": "none"}, **options)
    rewritten = edgekit.plan(path, rewrite={"always": True}, **options)
    assert rewritten.baselines == given.baselines
    assert not given.baselines_rewritten
    assert rewritten.baselines_rewritten["gpu_only"] != given.baselines["gpu_only"]
    predicted = edgekit.check(path, **options).to_json()["predicted"]
    assert predicted["gpu_only_us"] == rewritten.baselines["gpu_only"].latency_us
    assert predicted["auto_us"] == rewritten.baselines["tensorrt_auto"].latency_us


def test_a_plan_on_the_gpu_alone_costs_what_the_gpu_alone_costs(folder):
    path = folder / "unet.onnx"
    plan = edgekit.plan(
        path, target=ORIN, precision="fp16", rewrite={"always": True}, placement={"dla_cores": []}
    )
    assert {layer.device for layer in plan.layers} == {"GPU"}
    assert plan.predicted == plan.baselines_rewritten["gpu_only"]
