"""Keys of `build` that set something of TensorRT's builder: from the file to a board's engine."""

from __future__ import annotations

import json

import pytest

from edgekit.api import check
from edgekit.errors import ConfigError, GateError
from edgekit.pipeline.steps.build_request import check_build_options, make_build_request
from tests.pipeline import nets
from tests.pipeline.test_board_build import board, config_of, jobs, pipeline

GPU = "latency, dla_cores: []"  # of small_config's section placement
DEPLOY = "deploy: {boards: [{name: lab, host: 192.0.2.7}]}\n"


def test_keys_are_in_the_request_in_the_tables_order(tmp_path):
    build = "{sparsity: true, workspace_mib: 64, optimization_level: 4, max_aux_streams: 0}"
    path = config_of(tmp_path, "", "10.3", build, objective=GPU)
    with pipeline(path, tmp_path) as one:
        request, _ = make_build_request(one.context)
    (engine,) = request.document["engines"]
    assert engine["settings"] == [
        {
            "key": "optimization_level",
            "kind": "number",
            "name": "builder_optimization_level",
            "number": 4,
        },
        {"key": "workspace_mib", "kind": "pool", "name": "WORKSPACE", "number": 64 << 20},
        {"key": "sparsity", "kind": "flag", "name": "SPARSE_WEIGHTS", "number": 1},
        {"key": "max_aux_streams", "kind": "number", "name": "max_aux_streams", "number": 0},
    ]
    assert engine["pools"] == {}


@pytest.mark.parametrize(
    ("build", "line", "says"),
    [
        ("{weight_streaming: true}", 1, "STRONGLY_TYPED"),
        ("{weight_streaming: true, typing: strong}", 1, "DLA_HYBRID"),
        ("{fp8: true}", 1, "it needs 8.9"),
        ("{error_on_timing_cache_miss: true, timing_cache: false}", 1, "build.timing_cache"),
    ],
)
def test_what_cannot_work_is_refused_first_with_its_line(build, line, says, tmp_path):
    path = config_of(tmp_path, DEPLOY, "10.3", build, precision="fp16")
    with pytest.raises(ConfigError) as caught, pipeline(path, tmp_path) as one:
        one.build()
    assert any(says in problem.message for problem in caught.value.problems)
    lines = path.read_text().splitlines()
    place = str(caught.value.problems[0].where).split(":")
    assert lines[int(place[-2]) - 1].startswith("build:")
    assert "steps" not in caught.value.extra or not caught.value.extra["steps"]


@pytest.mark.parametrize("build", ["{}", "{typing: strong, weight_streaming: true}"])
def test_a_budget_for_weights_that_no_engine_streams_is_noted(build, tmp_path):
    deploy = "deploy: {memory: {weights_mib: 64}, boards: [{name: lab, host: 192.0.2.7}]}\n"
    path = config_of(tmp_path, deploy, "10.3", build, precision="fp16", objective=GPU)
    with pipeline(path, tmp_path) as one:
        check_build_options(one.context)
        noted = [note for note in one.context.session.notes if "weights_mib" in note]
    assert len(noted) == (build == "{}")


@pytest.mark.boards
@pytest.mark.slow
@pytest.mark.few(1)
def test_a_board_builds_a_strongly_typed_engine_that_streams(tmp_path):
    build = (
        "{typing: strong, weight_streaming: true, tactic_sources: [JIT_CONVOLUTIONS], "
        "tiling_optimization_level: fast, max_aux_streams: 1, profiling_verbosity: none, "
        "tf32: false}"
    )
    with board(tmp_path, "10.3.0") as (deploy, _):
        path = config_of(tmp_path, deploy, "10.3", build, precision="fp16", objective=GPU)
        with pipeline(path, tmp_path) as one:
            document = one.build().to_json()
    (built,) = document["boards"]
    (engine,) = built["engines"]
    assert engine["settings"] == {
        "max_aux_streams": "1",
        "profiling_verbosity": "NONE",
        "tactic_sources": "JIT_CONVOLUTIONS",
        "tf32": "off",
    }
    # the log still says what runs where
    assert built["plan"]["same"]
    assert built["plan"]["engines"][0]["inspector"] is None
    assert "WEIGHT_STREAMING" in engine["attempts"][engine["attempt"]]["flags"]
    assert any("build.tiling_optimization_level is not used" in x for x in document["notes"])
    (job,) = jobs(tmp_path)
    request = json.loads(job.read_text())
    assert [one["typing"] for one in request["request"]["engines"]] == ["strong"]


def typed_config(tmp_path, kind, **options):
    """A matrix product with INT4 weights in blocks, or between FP8 Q/DQ nodes."""
    path = nets.small_config(tmp_path / "config", objective=GPU, **options)
    nets.quantized_product(path.parent / "small.onnx", kind)
    return path


@pytest.mark.parametrize(
    ("kind", "target", "flag"),
    [("int4", "jetson-agx-orin-64gb", "INT4"), ("fp8", "jetson-agx-thor", "FP8")],
)
def test_types_of_the_file_set_their_flag(kind, target, flag, tmp_path):
    path = typed_config(tmp_path, kind, target=target, precision="fp32")
    path.write_text(path.read_text() + "build: {typing: weak}\n")
    with pipeline(path, tmp_path) as one:
        request, _ = make_build_request(one.context)
    assert [one["name"] for one in request.document["engines"][0]["settings"]] == [flag]
    path.write_text(path.read_text().replace("weak", "strong"))
    with pipeline(path, tmp_path) as one:
        request, _ = make_build_request(one.context)
    (engine,) = request.document["engines"]
    assert (engine["typing"], engine.get("settings")) == ("strong", None)


def test_fp8_beside_int8_is_refused_and_on_an_orin_nothing_builds(tmp_path):
    path = typed_config(tmp_path, "fp8", target="jetson-agx-thor", precision="int8")
    with (
        pytest.raises(ConfigError, match="FP8 and INT8 exclude each other"),
        pipeline(path, tmp_path) as one,
    ):
        make_build_request(one.context)
    orin = typed_config(tmp_path / "orin", "fp8", precision="fp16")
    with pytest.raises(GateError) as caught, pipeline(orin, tmp_path) as one:
        one.build()
    assert "the builder of TensorRT 10.3 refuses QuantizeLinear on float8_e4m3fn" in str(
        caught.value
    )


def test_int4_weights_are_the_gpus_also_where_dlas_read_qdq(tmp_path):
    nets.quantized_product(tmp_path / "int4.onnx", "int4")
    found = check(
        tmp_path / "int4.onnx", target="jetson-agx-orin-64gb", precision="fp16", tensorrt="11.4.1"
    ).to_json()
    (layer,) = (one for one in found["layers"] if one["name"] == "mm")
    assert not layer["dla"]["ok"], layer["dla"]
    reason = next(one for one in layer["dla"]["reasons"] if one["rule"] == "general.type")
    assert reason["found"] == "int4"
