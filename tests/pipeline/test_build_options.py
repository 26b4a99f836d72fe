"""What a configuration asks of builds on a board, refused before any board is asked."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import ConfigError, DataError, EdgekitError, EnvironmentLack
from edgekit.pipeline.steps.build_request import (
    check_build_options,
    make_build_request,
    memory_settings,
)
from edgekit_device.protocol.manifest import MemorySettings
from tests.pipeline import nets
from tests.pipeline.test_board_build import config_of, pipeline
from tests.tensorrt.plugin_toys import compiled


def test_what_of_the_gpus_memory_a_board_cannot_have_is_noted(tmp_path):
    memory = "memory: {persistent_cache: 0.5, weights_mib: 2}"
    lab = f"deploy: {{boards: [{{name: lab, host: 192.0.2.7}}], {memory}}}\n"
    path = config_of(tmp_path, lab, "8.5.2", "{}", target="jetson-agx-xavier", precision="fp16")
    with pipeline(path, tmp_path) as one:
        check_build_options(one.context)
        note, other = one.context.session.notes
        assert memory_settings(one.context) == MemorySettings(True, 0.5, 2 << 20)
    assert "deploy.memory.weights_mib has no effect" in other
    assert "deploy.memory.persistent_cache has no effect" in note
    assert "compute capability 7.2" in note


@pytest.mark.parametrize(
    ("target", "generation"),
    [("jetson-agx-xavier", "1.0"), ("jetson-agx-orin-64gb", "2.0"), ("jetson-agx-thor", "2.0")],
)
def test_the_boards_layouts_are_in_the_build_request(target, generation, tmp_path):
    path = nets.small_config(tmp_path, target=target, precision="fp16")
    with pipeline(path, tmp_path) as one:
        request, _ = make_build_request(one.context)
    assert request.job.dla == generation
    # requests for the newest layouts stay as they were
    assert ("dla" in request.document) == (generation == "1.0")


@pytest.mark.parametrize(
    ("build", "says", "hint"),
    [
        ("{refit: [conv9.w]}", "no weight 'conv9.w'", "conv1.w"),
        ("{refit: [conv1.w, x]}", "no weight 'x'", "bn.bias"),
    ],
    ids=["a near name", "no near name"],
)
def test_weights_that_cannot_be_refitted_by_name_are_reported_first(tmp_path, build, says, hint):
    deploy = "deploy: {boards: [{name: lab, host: 192.0.2.7}]}\n"
    path = config_of(tmp_path, deploy, "10.3", build)
    with pytest.raises(ConfigError) as caught, pipeline(path, tmp_path) as one:
        one.build()
    (problem,) = caught.value.problems
    assert says in problem.message
    assert hint in problem.hint
    assert "small.yaml:" in str(problem.where)
    assert "calibrate" not in [step["name"] for step in caught.value.extra["steps"]]


def test_a_backend_without_a_board_is_refused(tmp_path):
    path = config_of(tmp_path, "", "10.3", "{backend: tensorrt}")
    with pipeline(path, tmp_path) as one, pytest.raises(EnvironmentLack) as caught:
        one.build()
    assert (caught.value.code, caught.value.exit_code) == ("build.no-tensorrt", 3)


def _refused_bench(folder, settings):
    (folder / "small.yaml").write_text(
        nets.CONFIG.format(
            target="jetson-agx-orin-64gb", precision="int8", objective="gpu_time"
        ).replace("iterations: 2", f"iterations: 2, {settings}")
    )
    nets.small_net(folder / "small.onnx")
    with pytest.raises(EdgekitError) as caught, pipeline(folder / "small.yaml", folder) as one:
        one.bench()
    assert "build" not in [step["name"] for step in caught.value.extra["steps"]]
    return caught.value


def test_a_graph_of_a_plan_with_a_dla_is_refused_whatever_the_backend(tmp_path):
    assert _refused_bench(tmp_path, "graph: true").code == "bench.graph"


@pytest.mark.parametrize(("name", "shape"), [("z", (1, 3, 16, 16)), ("x", (1, 3, 8, 16))])
def test_frames_that_do_not_fit_are_reported_before_anything_is_built(tmp_path, name, shape):
    np.savez(tmp_path / "bad.npz", **{name: np.zeros(shape, np.float32)})
    error = _refused_bench(tmp_path, "inputs: bad.npz")
    assert isinstance(error, DataError)
    assert "bad.npz" in f"{error.where} {error.message}"


def test_libraries_of_plugins_are_checked_before_a_board_is_asked(tmp_path):
    deploy = "deploy: {boards: [{name: lab, host: 192.0.2.7}]}\n"
    path = config_of(tmp_path, deploy, "10.3", "{}")
    compiled(tmp_path / "config" / "libmine.so", needed=["libnvinfer.so.10"])
    text = path.read_text()
    plugins = "plugins: [{operator: Mine, library: libmine.so}]"
    path.write_text(text.replace("onnx: small.onnx", f"onnx: small.onnx, {plugins}"))
    with pipeline(path, tmp_path) as one, pytest.raises(DataError) as caught:
        one.build()
    assert caught.value.code == "plugin.machine"
    assert "small.yaml:3:" in caught.value.where
