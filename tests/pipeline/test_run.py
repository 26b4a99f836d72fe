"""The whole way on a small network, on edgekit's own board."""

import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgekit.config.loader import load_config, open_config
from edgekit.errors import DataError, EdgekitError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import SilentProgress
from edgekit.pipeline.run import STEP_NAMES as STEPS
from edgekit.pipeline.steps.accuracy import artefacts
from edgekit.pipeline.steps.calibrate import calibration_inputs
from edgekit.pipeline.steps.rewrite import model
from tests.bundles.bundle_toys import document_of
from tests.pipeline.nets import small_config, small_net

pytestmark = pytest.mark.boards


def run(config, tmp_path, **options):
    with Pipeline(load_config(config), out=tmp_path / "out", **options) as pipeline:
        return pipeline.run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One run, and a second with nothing changed."""
    folder = tmp_path_factory.mktemp("whole")
    config = small_config(folder)
    cache = Cache(folder / "cache")
    first = run(config, folder, cache=cache)
    return folder, config, cache, first, run(config, folder, cache=cache)


def test_second_run_does_no_work_twice(whole):
    _, _, _, first, second = whole
    statuses = {step.name: step.status for step in second.document.steps}
    # an INT8 network whose plan and files are there: every step is reused
    assert statuses == dict.fromkeys(STEPS, "reused")
    assert second.document.bundle.digest == first.document.bundle.digest
    assert second.document.bench.latency_ms == first.document.bench.latency_ms


@pytest.mark.whole
def test_force_does_everything_again_and_gives_the_same_bundle(whole):
    folder, config, cache, first, _ = whole
    again = run(config, folder, cache=cache, force=True)
    assert {step.status for step in again.document.steps} == {"done"}
    assert again.document.bundle.digest == first.document.bundle.digest


def test_a_changed_bench_section_repeats_the_bench_alone(whole, tmp_path):
    folder, config, cache, _, _ = whole
    changed = folder / "changed.yaml"
    changed.write_text(config.read_text().replace("iterations: 2", "iterations: 3"))
    document = run(changed, folder, cache=cache).document
    done = [step.name for step in document.steps if step.status == "done"]
    assert done == ["bench", "report"]


@pytest.mark.whole
def test_what_a_command_measured_otherwise_is_the_newest(whole, tmp_path):
    folder, config, cache, _, _ = whole
    text = config.read_text().replace("iterations: 2", "iterations: 4")
    (other := folder / "newest.yaml").write_text(text)
    run(other, folder, cache=cache)
    options = {"bench": {"iterations": 7, "idle_s": 0.01}}
    with Pipeline(open_config(other, **options), out=tmp_path / "out", cache=cache) as pipeline:
        newest = pipeline.bench()
    document = run(other, folder, cache=cache).document
    assert document.bench.latency_ms == newest.latency_ms
    written = json.loads((folder / "out/bench.json").read_text())
    assert written["samples_ms"] == newest.samples_ms
    (step,) = [step for step in document.steps if step.name == "bench"]
    assert step.status == "reused"
    assert "iterations 7, idle_s 0.01 (the configuration: 4, unset)" in step.detail
    # the configuration's own change asks for a measurement, and an older one never comes back
    for count in (5, 4):
        other.write_text(text.replace("iterations: 4", f"iterations: {count}"))
        assert run(other, folder, cache=cache).document.bench.iterations == count


def test_files_are_there_and_nothing_temporary(whole):
    folder, _, _, first, _ = whole
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {
        "bench.json",
        "bundle.ekb",
        "outputs.npz",
        "plan.json",
        "report.html",
        "report.json",
        "run.json",
        "trace.json",
    }
    stripped = first.document.bundle.stripped_bytes
    assert abs((folder / "out" / "bundle.ekb").stat().st_size - stripped) < 8192


@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["jetson-orin-nano-8gb", "jetson-agx-thor"])
def test_gpu_only_is_an_answer(tmp_path, target):
    config = small_config(tmp_path, target=target, precision="fp16", objective="latency")
    result = run(config, tmp_path)
    devices = {layer.device for layer in result.document.plan.layers}
    assert devices == {"GPU"}
    assert result.document.plan.loadables == ()
    assert result.document.accuracy.cosine > 0.999


def test_fp32_is_bit_equal_without_optimisation_and_close_with_it(tmp_path):
    from edgekit.network.session import session
    from edgekit.reference.run import Runner

    config = small_config(tmp_path, precision="fp32")
    with Pipeline(load_config(config), out=tmp_path / "out") as pipeline:
        pipeline.build()
        context = pipeline.context
        (feed,) = list(calibration_inputs(context))[:1]
        reference = session(model(context), optimise=False).run(None, dict(feed))[0]
        cut = Runner(artefacts(context), optimise=False).run(feed)["y"]
        assert cut.tobytes() == reference.tobytes()
        optimised = Runner(artefacts(context)).run(feed)["y"]
        assert np.abs(optimised - reference).max() <= 1e-5 * np.abs(reference).max()


@pytest.mark.whole
def test_pins_cut_the_network_into_segments(tmp_path):
    extra = (
        "placement: {objective: latency, pin: [{layers: 'conv*', device: DLA0},"
        " {layers: pool, device: GPU}, {layers: relu1, device: DLA0}]}\n"
    )
    config = small_config(tmp_path)
    text = config.read_text().replace("placement: {objective: gpu_time}\n", extra)
    config.write_text(text)
    document = run(config, tmp_path).document
    devices = {layer.name: layer.device for layer in document.plan.layers}
    assert (devices["conv1"], devices["pool"], devices["conv2"]) == ("DLA0", "GPU", "DLA0")
    assert len(document.plan.loadables) == 2
    assert document.refit.bit_equal is True
    assert len(document.accuracy.per_segment) >= 3


@pytest.mark.whole
def test_outputs_cut_the_network(tmp_path):
    config = small_config(tmp_path)
    text = config.read_text().replace("{onnx: small.onnx}", "{onnx: small.onnx, outputs: [r2, p1]}")
    config.write_text(text)
    with Pipeline(load_config(config), out=tmp_path / "out") as pipeline:
        document = pipeline.run().document
        outputs = document.infer.outputs
    assert [(o.name, o.shape) for o in outputs] == [("r2", [1, 32, 6, 6]), ("p1", [1, 16, 8, 8])]
    names = {layer.name for layer in document.plan.layers}
    assert "fc" not in names


@pytest.mark.whole
def test_split_over_both_cores(tmp_path):
    config = small_config(tmp_path, objective="throughput", extra="build: {mode: split}\n")
    text = config.read_text().replace(
        "{objective: throughput}", "{objective: throughput, dla_cores: [0, 1]}"
    )
    config.write_text(text)
    document = run(config, tmp_path).document
    assert document.refit.bit_equal is True
    assert abs(sum(plan.share for plan in document.plan.plans) - 1) < 1e-6


def test_refit_ships_only_what_changed(whole):
    folder, config, cache, first, _ = whole
    other = folder / "other.onnx"
    small_net(other, scale=0.5)  # the same seed: the last layer alone differs
    with Pipeline(load_config(config), out=folder / "out", cache=cache) as pipeline:
        document = pipeline.refit(other).to_json()
        assert document["changed"] in (1, 2)  # the codes may stay and only their scale change
        (release,) = document["releases"]
        assert release["digest"] != first.document.bundle.digest
    # a refitted release gives what a fresh build of those weights gives, scales being the same
    with Pipeline(load_config(config), out=folder / "refitted", cache=cache) as pipeline:
        answer = pipeline.infer(output=folder / "refitted.npz")
    assert answer.release == release["release"]
    assert answer.bit_equal is None
    old = np.load(folder / "out" / "outputs.npz")["y"]
    new = np.load(folder / "refitted.npz")["y"]
    assert not np.array_equal(old, new)
    with Pipeline(load_config(config), out=folder / "out", cache=cache) as pipeline:
        pipeline.deploy()
        client = pipeline.boards.clients()[0]
        serving = client.app_releases("small").current_release
        assert serving.digest == first.document.bundle.digest
        assert client.rollback("small").current == release["release"]


def test_refit_refuses_other_shapes_types_and_names(whole):
    folder, config, cache, _, _ = whole
    wrong = folder / "wrong.onnx"
    small_net(wrong, classes=7)
    model = onnx.load(wrong)
    for tensor in model.graph.initializer:
        if tensor.name == "conv2.b":
            tensor.name = "conv2.bias"
    for node in model.graph.node:
        node.input[:] = ["conv2.bias" if name == "conv2.b" else name for name in node.input]
    onnx.save(model, wrong)
    with (
        Pipeline(load_config(config), out=folder / "out", cache=cache) as pipeline,
        pytest.raises(DataError) as caught,
    ):
        pipeline.refit(wrong)
    error = caught.value
    assert error.code == "refit.mismatch"
    for name in ("fc.w", "fc.b", "conv2.b"):
        assert name in error.message + error.hint


def test_tampered_cache_is_caught_by_the_board(tmp_path):
    config = small_config(tmp_path)
    cache = Cache(tmp_path / "cache")
    with Pipeline(load_config(config), out=tmp_path / "out", cache=cache) as pipeline:
        pipeline.bundle()
        digest = next(iter(artefacts(pipeline.context).values))
    blob = cache.blob_path(digest)
    data = bytearray(blob.read_bytes())
    data[0] ^= 1
    blob.write_bytes(bytes(data))
    with (
        Pipeline(load_config(config), out=tmp_path / "out", cache=cache) as pipeline,
        pytest.raises(EdgekitError) as caught,
    ):
        pipeline.run()
    assert caught.value.exit_code == 4
    assert digest[:12] in str(caught.value)


class Interrupting(SilentProgress):
    """Raises KeyboardInterrupt when a step begins."""

    def __init__(self, name):
        self.name = name

    def begin(self, number, total, name):
        if name == self.name:
            raise KeyboardInterrupt


@pytest.mark.few(4)
@pytest.mark.parametrize("step", STEPS)
def test_interrupt_in_every_step_then_the_same_command_finishes(step, tmp_path, shared_small):
    config, cache = shared_small
    with (
        Pipeline(
            load_config(config), out=tmp_path / "out", cache=cache, progress=Interrupting(step)
        ) as pipeline,
        pytest.raises(KeyboardInterrupt),
    ):
        pipeline.run()
    leftovers = [p for p in (tmp_path / "out").rglob("*") if p.name.startswith(".tmp")]
    assert leftovers == []
    document = run(config, tmp_path, cache=cache).document
    assert document.refit.bit_equal is True


@pytest.fixture(scope="module")
def shared_small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupt")
    return small_config(folder), Cache(folder / "cache")


def test_weights_of_the_stripped_bundle_are_elsewhere(whole):
    _, _, _, first, _ = whole
    from edgekit.bundles.files import read

    bundle = read(first.document.bundle.path)
    assert bundle.weights == {}
    largest = max(w["bytes"] for w in document_of(bundle)["weights"].values())
    assert largest >= 1024
    for digest, blob in bundle.blobs.items():
        if document_of(bundle)["blobs"][digest]["kind"] == "engine":
            proto = onnx.load_model_from_string(bytes(blob))
            inline = [
                numpy_helper.to_array(t).nbytes
                for t in proto.graph.initializer
                if t.data_location != onnx.TensorProto.EXTERNAL
            ]
            assert max(inline, default=0) < 1024
