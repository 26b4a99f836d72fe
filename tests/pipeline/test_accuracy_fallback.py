"""An INT8 build below the gate keeps the fewest layers in FP16; users can keep some themselves."""

from __future__ import annotations

import json

import pytest

import edgekit
from edgekit.cli.main import main
from edgekit.config.loader import load_config
from edgekit.errors import GateError, UsageError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import SilentProgress
from edgekit.pipeline.questions import sensitivity
from edgekit.pipeline.steps import accuracy as steps
from edgekit.pipeline.steps.plan import plan
from edgekit.reference import search_bounds as bounds
from tests.pipeline.nets import small_config

CACHE = "calibration-cache"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A configuration without a gate, a cache, and the accuracy of INT8 and of FP16."""
    folder = tmp_path_factory.mktemp("plain")
    config = small_config(folder)
    with opened(config, folder) as pipeline:
        int8 = pipeline.build().accuracy.snr_db
    half = edgekit.build(config, precision="fp16").accuracy.snr_db
    assert half > int8 + 10
    return folder, int8, half


def opened(config, folder, **options):
    return Pipeline(load_config(config), out=folder / "out", cache=Cache(folder / CACHE), **options)


def gated(folder, name, minimum, more=""):
    config = small_config(folder / name)
    text = config.read_text() + f"accuracy: {{metric: snr_db, min: {minimum}{more}}}\n"
    config.write_text(text)
    return config


def precisions(plan):
    return {layer["name"]: layer["precision"] for layer in plan["layers"]}


@pytest.mark.whole
def test_a_run_keeps_the_fewest_layers_in_fp16_and_says_so_everywhere(plain):
    folder, int8, half = plain
    config = gated(folder, "gated", (int8 + half) / 2)
    with opened(config, folder) as pipeline:
        result = pipeline.run()
        layers = pipeline.context.fp16_by_gate
    assert layers
    document, report = result.document, result.report
    assert document.accuracy.snr_db >= (int8 + half) / 2
    found = precisions(json.loads((folder / "out" / "plan.json").read_text()))
    assert {found[name] for name in layers} == {"fp16"}
    assert "int8" in found.values(), "not all of it"
    reported = f"kept in FP16: {', '.join(name for name in found if name in layers)}"
    assert any(reported in note for note in document.notes)
    assert any(reported in note for note in report.notes)
    # the second time nothing is measured, placed or built again
    with opened(config, folder) as pipeline:
        again = pipeline.run()
        assert pipeline.context.fp16_by_gate == layers
    steps = {step.name: step for step in again.document.steps}
    assert steps["build"].status == steps["bundle"].status == "reused"
    assert "kept in FP16" in steps["build"].detail
    assert again.document.bundle.digest == document.bundle.digest


def test_each_of_the_retained_kernels_is_needed(plain):
    folder, int8, half = plain
    config = gated(folder, "needed", int8 + 3)
    with opened(config, folder) as pipeline:
        pipeline.build()
        layers = pipeline.context.fp16_by_gate
    with opened(config, folder) as pipeline:
        document = sensitivity(pipeline)
    proposal = document.proposal
    assert proposal.minimal
    assert set(proposal.fp16_layers) == set(layers)
    assert proposal.accuracy.snr_db >= int8 + 3 > proposal.int8.snr_db
    kernels = [set(row.layers) for row in document.kernels if set(row.layers) <= set(layers)]
    assert len(kernels) == proposal.kernels
    assert half > int8 + 3


class Interrupting(SilentProgress):
    """Progress that ends the work at a trial, and keeps what was told of them."""

    def __init__(self, trial=0):
        self.trial = trial
        self.messages = []

    def update(self, done, total, text):
        if text.startswith("trial "):
            self.messages.append(text)
        if self.trial and text.startswith(f"trial {self.trial},"):
            raise KeyboardInterrupt


def test_an_interrupted_search_goes_on_with_the_trials_it_has(plain, monkeypatch):
    folder, int8, half = plain
    config = gated(folder, "interrupted", int8 + (half - int8) * 0.6)
    inner, measured = steps.measured_accuracy, []

    def measure(context, model, artefacts, *, text="", **others):
        measured.append(text)
        return inner(context, model, artefacts, text=text, **others)

    monkeypatch.setattr(steps, "measured_accuracy", measure)
    cache = Cache(folder / "interrupted-cache")
    with (
        pytest.raises(KeyboardInterrupt),
        Pipeline(load_config(config), cache=cache, progress=Interrupting(4)) as pipeline,
    ):
        pipeline.build()
    first = [text for text in measured if text]
    assert len(first) == 2, "the first trial is the build itself"
    measured.clear()
    progress = Interrupting()
    with Pipeline(load_config(config), cache=cache, progress=progress) as pipeline:
        pipeline.build()
    assert not set(first) & set(measured)
    assert len([text for text in measured if text]) >= 1
    assert "trial 2, best so far none yet" in progress.messages
    assert any("layers in FP16" in text for text in progress.messages)


def test_a_bounded_search_says_what_it_left_out_and_thorough_goes_on(plain, monkeypatch, capsys):
    folder, int8, half = plain
    config = gated(folder, "early", int8 + (half - int8) * 0.6)
    for bound, value in (("_FEWEST_BUILDS", 2), ("_SEARCH_MACS", 1), ("_RANKING_MACS", 1)):
        monkeypatch.setattr(bounds, bound, value)

    def build(cache, *options):
        monkeypatch.setenv("EDGEKIT_CACHE", str(folder / cache))
        with pytest.raises(SystemExit) as ended:
            main(["build", str(config), "--json", "-q", *options])
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    first, again = build("early-cache"), build("early-cache-2")
    assert first["accuracy"] == again["accuracy"]
    assert first["notes"] == again["notes"]
    text = next(note for note in first["notes"] if "--thorough" in note)
    assert "stopped after 2 builds, so fewer layers may be enough" in text
    assert "ranked the kernels on the first input" in text
    assert build("early-cache")["notes"] == first["notes"], "from the cache, too"
    thorough = build("early-cache", "--thorough")
    assert not any("--thorough" in note for note in thorough["notes"])
    assert thorough["accuracy"]["snr_db"] >= int8 + (half - int8) * 0.6
    assert len(kept_layers(thorough)) < len(kept_layers(first))


def kept_layers(document):
    """The layers that a build keeps in FP16, as its notes name them."""
    (text,) = (note for note in document["notes"] if note.startswith("kept in FP16: "))
    return text.removeprefix("kept in FP16: ").partition(" (")[0].split(", ")


def test_builds_are_tried_on_the_first_inputs_where_there_are_many(plain, monkeypatch):
    folder, int8, half = plain
    minimum = int8 + (half - int8) * 0.6
    config = gated(folder, "many", minimum)
    for bound in ("_FEWEST_INPUTS", "_MOST_INPUTS"):
        monkeypatch.setattr(bounds, bound, 2)
    with Pipeline(load_config(config), cache=Cache(folder / "many-cache")) as pipeline:
        document = pipeline.build().to_json()
    assert any("tried builds on the first 2 inputs" in note for note in document["notes"])
    # the gate itself is about all inputs
    assert document["accuracy"]["count"] == 3
    assert document["accuracy"]["snr_db"] >= minimum
    assert document["accuracy"]["data"].startswith("3 synthetic")


def test_builds_are_tried_on_more_inputs_where_the_first_are_too_mild(plain):
    folder, _, _ = plain
    with opened(small_config(folder / "mild"), folder) as pipeline:
        pipeline.build()
        context = pipeline.context
    first = steps.TrialBuilds(context, 1).accuracy(context, frozenset(), "").snr_db
    whole = steps.TrialBuilds(context, None).accuracy(context, frozenset(), "").snr_db
    assert first > whole, "the first input is mild"
    few = steps.TrialBuilds.that_miss(context, 1, "snr_db", (first + 3 * whole) / 4)
    assert few.part is None or few.part > 1
    assert steps.TrialBuilds.that_miss(context, 1, "snr_db", first + 1).part == 1


def test_without_fallback_the_run_stops_as_it_is(plain):
    folder, int8, _ = plain
    config = gated(folder, "none", int8 + 1, ", fallback: none")
    with opened(config, folder) as pipeline, pytest.raises(GateError) as caught:
        pipeline.run()
    assert not pipeline.context.fp16_by_gate
    assert caught.value.extra["accuracy"]["snr_db"] == pytest.approx(int8)
    assert "accuracy.fallback: fp16" in caught.value.hint


def test_what_fp16_misses_too_is_reported_with_both_numbers(plain):
    folder, int8, half = plain
    config = gated(folder, "all", half + 60)
    with opened(config, folder) as pipeline, pytest.raises(GateError) as caught:
        pipeline.run()
    assert caught.value.code == "accuracy.below-gate"
    assert f"{int8:.6g} in INT8" in caught.value.message
    assert "INT8 kernels in FP16" in caught.value.message
    assert "fp32" in caught.value.hint


def test_layers_of_the_configuration_are_fp16_in_the_plan_and_cost_more(tmp_path):
    config = small_config(tmp_path)
    before = edgekit.plan(config)
    after = edgekit.plan(config, calibration={"fp16_layers": ["conv?", "bn"]})
    found = {layer.name: layer.precision for layer in after.layers}
    assert [found[name] for name in ("conv1", "bn", "conv2")] == ["fp16"] * 3
    assert found["pool"] == "int8"
    assert after.predicted.gpu_us >= before.predicted.gpu_us
    assert any("kept in FP16: conv1, bn, conv2" in note for note in after.notes)


def test_layers_that_are_not_there_are_reported_with_their_place_in_the_file(tmp_path):
    config = small_config(tmp_path)
    text = config.read_text().replace(
        "calibration: {method: entropy, count: 3}",
        "calibration:\n  count: 3\n  fp16_layers: [conf1]",
    )
    config.write_text(text)
    with pytest.raises(UsageError) as caught, opened(config, tmp_path) as pipeline:
        pipeline.plan()
    line = text.splitlines().index("  fp16_layers: [conf1]") + 1
    assert f"small.yaml:{line}" in caught.value.where
    assert "'conv1'" in caught.value.hint


def test_scales_are_not_measured_again_for_other_fp16_layers(tmp_path):
    config = small_config(tmp_path)
    with opened(config, tmp_path) as pipeline:
        pipeline.build()
    config.write_text(config.read_text().replace("count: 3}", "count: 3, fp16_layers: [fc]}"))
    with opened(config, tmp_path) as pipeline:
        steps = {step["name"]: step["status"] for step in pipeline.build().to_json()["steps"]}
    assert steps["calibrate"] == "reused"
    assert steps["build"] == "done"


def test_a_placement_that_the_gate_changed_is_said(plain):
    folder, int8, _ = plain
    for name, minimum in (("kept", int8 + 3), ("changed", int8 + 20)):
        with opened(gated(folder, name, minimum), folder) as pipeline:
            steps = {step["name"]: step["detail"] for step in pipeline.build().to_json()["steps"]}
            layers = plan(pipeline.context).layers
        share = f"{sum(layer.device != 'GPU' for layer in layers)} of {len(layers)} layers"
        reported = f"; placement is now {share} on the DLA"
        # the plan's step counted as they were placed in INT8
        assert (reported in steps["build"]) == (share not in steps["plan"]) == (name == "changed")
