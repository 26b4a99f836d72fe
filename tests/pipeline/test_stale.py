"""Nothing is read back that another configuration computed, and nothing told is lost by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.config.loader import open_config
from edgekit.error_document import FinishedStep
from edgekit.network.loading.load import load
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.questions import plan_table, what_if
from edgekit.pipeline.steps.judge import check
from edgekit.pipeline.steps.plan import keep_in_fp16
from edgekit.placement.check_document import BriefCheck
from edgekit.quantize.qdq.to_implicit import from_qdq
from tests.pipeline.nets import small_config, small_net
from tests.quantize.qdq_nets import quantised_by_ort

ORIN = "jetson-agx-orin-64gb"
TYPED = "11.4.1"


@pytest.fixture(scope="module")
def qdq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network, quantised by onnxruntime.quantization."""
    folder = tmp_path_factory.mktemp("stale")
    small_net(folder / "small.onnx")
    random = np.random.default_rng(0)
    feeds = [{"x": random.standard_normal((1, 3, 16, 16)).astype(np.float32)} for _ in range(2)]
    return quantised_by_ort(folder, onnx.load(folder / "small.onnx"), feeds, biases=False)


@pytest.fixture(scope="module")
def partial_cache(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The small network as a file, and a calibration cache of it that lacks a tensor."""
    folder = tmp_path_factory.mktemp("partial")
    config = small_config(folder)
    with Pipeline(open_config(config), cache=Cache(folder / "cache")) as steps:
        steps.calibrate(folder / "calib.cache")
    lines = (folder / "calib.cache").read_text().splitlines()
    (folder / "calib.cache").write_text(
        "\n".join(line for line in lines if line.split(":")[0] not in ("g", "f")) + "\n"
    )
    return folder / "small.onnx", folder / "calib.cache"


def opened(source: Path, folder: Path, **options: object) -> Pipeline:
    given = {"target": ORIN, **options}
    return Pipeline(open_config(source, **given), out=folder / "out", cache=Cache(folder / "kept"))


def int8_weights(path: Path) -> set[str]:
    """The convolutions whose weights come from Q/DQ nodes."""
    graph = onnx.load(path).graph
    made = {out for node in graph.node if node.op_type == "DequantizeLinear" for out in node.output}
    return {node.name for node in graph.node if node.op_type == "Conv" and node.input[1] in made}


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["configured", "kept by the gate"])
def test_the_model_of_a_bundle_is_that_of_its_own_fp16_layers(how: str, tmp_path: Path) -> None:
    small_config(tmp_path)
    plain = {"tensorrt": TYPED, "calibration": {"count": 2}, "accuracy": {"min": -1.0}}
    with opened(tmp_path / "small.onnx", tmp_path, **plain) as steps:
        steps.bundle()
    file = tmp_path / "out" / "qdq.onnx"
    assert "conv2" in int8_weights(file)
    names = ["conv2", "relu2"]
    constraints = names if how == "configured" else []
    other = {**plain, "calibration": {"count": 2, "fp16_layers": constraints}}
    with opened(tmp_path / "small.onnx", tmp_path, **other) as steps:
        if not constraints:
            steps.context = keep_in_fp16(steps.context, names)
        steps.bundle()
    assert "conv2" not in int8_weights(file)
    with opened(tmp_path / "small.onnx", tmp_path, **plain) as steps:
        steps.bundle()
    assert "conv2" in int8_weights(file), "and back"


@pytest.mark.few(1)
@pytest.mark.parametrize("source", ["cache", "qdq", "typed"])
def test_questions_about_given_scales_begin_with_nothing_retained(
    source: str, qdq: Path, partial_cache: tuple[Path, Path], tmp_path: Path
) -> None:
    model, cache = partial_cache
    given = {"calibration": {"cache": str(cache), "missing": "fp16"}} if source == "cache" else {}
    release = {"tensorrt": TYPED} if source == "typed" else {}
    file = model if source == "cache" else qdq
    with opened(file, tmp_path / "one", **given, **release) as steps:
        rows = plan_table(steps, modes=["30W", "50W"]).rows
    assert {row.power_mode for row in rows} == {"30W", "50W"}
    with opened(file, tmp_path / "two", **given, **release) as steps:
        steps.plan()
        document = what_if(steps, "pin conv1 GPU; mode 30W")
    assert document.schema == "edgekit.whatif/1"


@pytest.mark.parametrize("first", ["plan", "build"])
def test_what_is_lacking_is_reported_each_time(
    first: str, partial_cache: tuple[Path, Path], tmp_path: Path
) -> None:
    model, cache = partial_cache
    given = {"calibration": {"cache": str(cache), "missing": "fp16", "count": 2}}
    notes = []
    for command in (first, "plan", "plan"):
        with opened(model, tmp_path, **given) as steps:
            made = getattr(steps, command)()
            notes.append(made.notes)
    assert all(
        any("no scale for" in note and "'g'" in note for note in reported) for reported in notes
    )
    assert notes[1] == notes[2]
    assert len(set(notes[2])) == len(notes[2])


def test_what_is_noted_in_a_step_is_retained_with_it(tmp_path: Path) -> None:
    reported = []
    for _ in range(2):
        with opened(small_config(tmp_path), tmp_path) as steps:
            context = steps.context
            context.note("before")

            def compute(context: Context = context) -> FinishedStep:
                context.note("of it")
                return FinishedStep("a", "done", 7.0, "")

            found = context.stored(FinishedStep, "a-step", compute, "key")
            assert found == FinishedStep("a", "done", 7.0, "")
            reported.append(context.session.notes)
    assert reported == [["before", "of it"]] * 2


def test_q_dq_models_of_one_plain_network_are_checked_each_by_itself(
    qdq: Path, tmp_path: Path
) -> None:
    proto = onnx.load(qdq)
    graph = proto.graph
    # one pair more, with the same scale: the same plain network and scales
    dqs = [n for n in graph.node if n.op_type == "DequantizeLinear"]
    dq = next(n for n in dqs if n.input[0].startswith("r1"))
    q = next(n for n in graph.node if dq.input[0] in n.output)
    readers = [n for n in graph.node if dq.output[0] in n.input]
    scale = list(q.input[1:])
    pair = [
        helper.make_node("QuantizeLinear", [dq.output[0], *scale], ["again_q"], "again_q"),
        helper.make_node("DequantizeLinear", ["again_q", *scale], ["again"], "again"),
    ]
    for node in readers:
        node.input[list(node.input).index(dq.output[0])] = "again"
    at = next(i for i, n in enumerate(graph.node) if n.name == dq.name) + 1
    nodes = [*graph.node[:at], *pair, *graph.node[at:]]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "more.onnx")
    one, other = from_qdq(load(qdq)), from_qdq(load(tmp_path / "more.onnx"))
    assert one.model.digest == other.model.digest
    assert dict(one.scales) == dict(other.scales)
    counts = []
    for file in (qdq, tmp_path / "more.onnx"):
        with opened(file, tmp_path, tensorrt=TYPED) as steps:
            counts.append(check(steps.context).figures.layers)
    assert counts[1] == counts[0] + 2


def test_a_rewriting_reports_of_its_own_fp16_layers(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    in_fp16 = {"calibration": {"fp16_layers": ["conv*"]}}

    def before(folder: Path, *, checked: bool = False, **options: object) -> BriefCheck:
        if checked:
            with opened(config, folder, **options) as steps:
                check(steps.context)
        with opened(config, folder, **options) as steps:
            return steps.rewrite().before

    fresh = before(tmp_path / "fresh", **in_fp16)
    plain = before(tmp_path / "shared")
    assert fresh.predicted != plain.predicted
    assert before(tmp_path / "shared", **in_fp16) == fresh
    assert before(tmp_path / "checked", checked=True, **in_fp16) == fresh
