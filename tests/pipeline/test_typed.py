"""INT8 with a strongly typed TensorRT: the whole way, from a plain model and from a Q/DQ model."""

import json

import numpy as np
import pytest

from edgekit.config.loader import load_config
from edgekit.dla.judge import judge
from edgekit.dla.precision import plan_lowering
from edgekit.network.loading.load import load
from edgekit.network.lowering.layers import layers
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.load import fp16_layers, needs_qdq_nodes, user_model
from edgekit.pipeline.steps.method import scales, typed_model
from edgekit.pipeline.steps.plan import plan
from edgekit.pipeline.steps.rewrite import network
from edgekit.quantize.qdq.to_implicit import from_qdq
from edgekit.targets.loader import get
from tests.pipeline.nets import small_config

pytestmark = pytest.mark.boards

ORIN = "jetson-agx-orin-64gb"
TYPED = 'tensorrt: "11.4.1"\n'


def open_pipeline(config, folder, **options):
    cache = options.pop("cache", None) or Cache(folder / "cache")
    return Pipeline(load_config(config), out=folder / "out", cache=cache, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    config = small_config(folder, extra=TYPED)
    with open_pipeline(config, folder) as pipeline:
        result = pipeline.run()
        found = scales(pipeline.context)
        fp16 = fp16_layers(pipeline.context, network(pipeline.context))
        plain = network(pipeline.context)
    return folder, config, result, found, plain, fp16


def test_a_plain_model_is_lowered_and_served(whole):
    _, _, result, _, _, _ = whole
    document = result.document
    assert document.refit.bit_equal is True
    assert document.infer.bit_equal is True
    on_dla = [row for row in document.plan.layers if row.device != "GPU"]
    assert on_dla
    assert {row.precision for row in on_dla if row.name != "softmax"} == {"int8"}
    assert any("calibrate to-qdq" in note for note in document.notes)
    assert document.accuracy.cosine > 0.99


def test_the_plan_costs_what_the_same_int8_build_costs_elsewhere(whole, tmp_path):
    _, _, result, _, _, _ = whole
    config = small_config(tmp_path)
    with open_pipeline(config, tmp_path) as pipeline:
        implicit = pipeline.plan()
    # but for a reshape in front of the softmax, which is FP16 between Q/DQ nodes
    wanted = pytest.approx(implicit.predicted.to_json(), rel=1e-4)
    assert result.document.plan.predicted.to_json() == wanted


def test_the_board_builds_from_a_model_with_the_scales_and_precisions_of_the_plan(whole):
    folder, _, result, scales, plain, fp16 = whole
    model = load(folder / "out" / "qdq.onnx")
    assert result.document.bundle.qdq == str(folder / "out" / "qdq.onnx")
    back = from_qdq(model)
    assert scales.quantised
    for name in scales.quantised:
        assert back.scales[name] == np.float32(scales.scales[name])
    judged = judge(layers(model), get(ORIN), tensorrt="11.4.1")
    for row in result.document.plan.layers:
        assert judged.precision_of(row.name) == row.precision
    assert set(plan_lowering(plain, scales.scales, fp16).tensors) == scales.quantised


def test_nothing_is_done_twice(whole):
    folder, config, _, _, _, _ = whole
    with open_pipeline(config, folder) as pipeline:
        steps = pipeline.run().document.steps
    assert {s.status for s in steps if s.name not in ("self-test",)} == {"reused"}


def test_a_qdq_model_is_planned_in_int8_and_stays_as_it_is(whole, tmp_path):
    folder, _, result, _, _, _ = whole
    source = folder / "out" / "qdq.onnx"
    config = small_config(tmp_path, extra=TYPED)
    text = config.read_text().replace("small.onnx", str(source))
    config.write_text(text + "rewrite: {enable: none}\n")
    with open_pipeline(config, tmp_path) as pipeline:
        built = pipeline.build().to_json()
        placed, context = plan(pipeline.context), pipeline.context
        assert typed_model(context) is user_model(context)
        assert scales(context).method == "qdq"
    wanted = {row.name: row.precision for row in result.document.plan.layers}
    found = {row.name: row.precision for row in placed.layers if row.name in wanted}
    assert found == wanted
    assert "int8" in found.values()
    assert built["accuracy"]["cosine"] > 0.99


@pytest.mark.whole
def test_weights_of_another_training_are_refitted(whole):
    folder, config, _, _, _, _ = whole
    from tests.pipeline.nets import small_net

    small_net(folder / "other.onnx", scale=1.1)
    with open_pipeline(config, folder) as pipeline:
        document = pipeline.refit(folder / "other.onnx").to_json()
    assert document["changed"] > 0


@pytest.mark.parametrize("tensorrt", ["10.8", "11.3"])
def test_releases_without_a_dla_plan_for_the_gpu_alone(tmp_path, tensorrt):
    config = small_config(tmp_path, extra=f'tensorrt: "{tensorrt}"\n')
    with open_pipeline(config, tmp_path) as pipeline:
        plan = pipeline.plan()
        assert not needs_qdq_nodes(pipeline.context)
    assert {layer.device for layer in plan.layers} == {"GPU"}
    assert not any("Q/DQ" in note for note in plan.notes)


def test_a_check_of_the_model_alone_still_refuses_and_says_what_to_do(tmp_path):
    from edgekit.placement.check import check_model

    small_config(tmp_path)
    found = check_model(tmp_path / "small.onnx", target=ORIN, tensorrt="11.4.1").document.to_json()
    reasons = {r["rule"]: r for row in found["layers"] for r in row["dla"]["reasons"]}
    assert list(reasons) == ["general.implicit_int8"]
    assert "edgekit calibrate to-qdq" in reasons["general.implicit_int8"]["fix"]
    json.dumps(found, allow_nan=False)


@pytest.mark.whole
def test_the_check_of_a_configuration_is_of_what_it_would_build(whole):
    folder, config, result, _, _, _ = whole
    with open_pipeline(config, folder) as pipeline:
        document = pipeline.check_result().document.to_json()
    rules = {r["rule"] for row in document["layers"] for r in row["dla"]["reasons"]}
    assert "general.implicit_int8" not in rules
    assert document["summary"]["dla_layers"] > 0
    assert any("calibrate to-qdq" in text for text in document["warnings"])
    assert result.document.steps[0].name == "check"
