"""Contexts never change: a decision and a variant are others, which share what does not differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.config.loader import open_config
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context, Session, variant
from edgekit.pipeline.progress import SilentProgress
from edgekit.pipeline.run import STEP_NAMES, required_steps, step_names
from edgekit.pipeline.steps.accuracy import build_key
from edgekit.pipeline.steps.calibrate import inputs_identity, with_measured_ranges
from edgekit.pipeline.steps.load import fp16_layers
from edgekit.pipeline.steps.method import scales
from edgekit.pipeline.steps.plan import keep_in_fp16, plan, query
from edgekit.pipeline.steps.rewrite import judgement, model, model_digest, network
from tests.pipeline.nets import small_config


@pytest.fixture
def context(tmp_path: Path) -> Context:
    # a hybrid engine takes the first core alone
    config = open_config(small_config(tmp_path), placement={"dla_cores": [0, 1]})
    return Context(config, Cache(tmp_path / "cache"), Session(SilentProgress()))


def results(context: Context) -> dict[str, Any]:
    """Returns what the steps before the build give."""
    context = with_measured_ranges(context)
    known = scales(context)
    return {
        "model": model_digest(context),
        "layers": [layer.name for layer in network(context).layers],
        "verdicts": {name: one.placeable for name, one in judgement(context).verdicts.items()},
        "target": query(context).target.name,
        "options": query(context).options,
        "plan": plan(context).to_json(),
        "inputs": inputs_identity(context),
        "scales": known and (known.digest, known.method),
        "fp16": fp16_layers(context, network(context)),
        "build": build_key(context),
    }


@pytest.mark.whole
@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp16"},
        {"target": "jetson-agx-xavier"},
        {"target": "jetson-agx-orin-64gb", "tensorrt": "11.4.1"},
        {"power_mode": "30W"},
        {"rewrite": {"enable": "none"}},
        {"rewrite": {"always": True}},
        {"calibration": {"seed": 5}},
        {"calibration": {"method": "minmax"}},
        {"calibration": {"fp16_layers": ["conv1"]}},
        {"placement": {"objective": "energy"}},
        {"placement": {"dla_cores": [1]}},
        {"placement": {"dla_cores": []}},
        {"placement": {"pin": [{"layers": "*", "device": "GPU"}]}},
        {"build": {"mode": "split"}},
        {"model": {"outputs": ["r2"]}},
    ],
    ids=str,
)
def test_a_variant_gives_what_it_gives_on_its_own(
    context: Context, changes: dict[str, Any]
) -> None:
    own = results(context)
    other = variant(context, **changes)
    alone = Context(other.config, context.cache, Session(SilentProgress()))
    assert results(other) == results(alone)
    assert results(context) == own


def test_a_variant_shares_what_does_not_differ(context: Context) -> None:
    other = variant(context, placement={"max_loadables": 7})
    assert model(other) is model(context)
    assert network(other) is network(context)
    assert plan(other) is not plan(context)
    assert plan(context) is plan(context)


def test_layers_that_are_kept_make_another_context(context: Context) -> None:
    context = with_measured_ranges(context)
    before = plan(context)
    first, second = [x.name for x in before.layers if x.precision == "int8"][:2]
    other = keep_in_fp16(context, [first])
    assert {x.name: x.precision for x in plan(other).layers}[first] == "fp16"
    assert build_key(other) != build_key(context)
    assert (context.fp16_by_gate, plan(context)) == ((), before)
    assert keep_in_fp16(other, [second]).fp16_by_gate == (first, second)


def test_a_command_runs_the_steps_that_it_names_and_those_that_they_need() -> None:
    assert step_names(required_steps("plan")) == ["rewrite", "plan"]
    assert step_names(required_steps("check", "plan")) == ["check", "rewrite", "plan"]
    assert step_names(required_steps("calibrate")) == ["rewrite", "calibrate"]
    assert step_names(required_steps("build"))[-1] == "build"
    assert set(STEP_NAMES) - set(step_names(required_steps("bench"))) == {"infer", "report"}
    assert step_names(required_steps("report")) == list(STEP_NAMES)
