"""What is reused is still true: other places, other boards, damaged caches, changed options."""

import shutil
from dataclasses import replace

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.bundles.files import read
from edgekit.config.loader import load_config, open_config
from edgekit.deployment.client import BoardClient
from edgekit.errors import UsageError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.accuracy import artefacts
from tests.bundles.bundle_toys import document_of
from tests.pipeline.nets import small_config, small_net


def pipeline(config, tmp_path, out="out", **options):
    if not hasattr(config, "file"):
        config = load_config(config)
    return Pipeline(config, out=tmp_path / out, cache=Cache(tmp_path / "cache"), **options)


def test_another_out_folder_gets_its_bundle(tmp_path):
    config = small_config(tmp_path)
    for out in ("one", "two", "one"):
        with pipeline(config, tmp_path, out) as p:
            p.bundle()
        assert (tmp_path / out / "bundle.ekb").exists()
    (tmp_path / "one" / "bundle.ekb").unlink()
    with pipeline(config, tmp_path, "one") as p:
        p.bundle()
    assert (tmp_path / "one" / "bundle.ekb").exists()


@pytest.mark.parametrize(
    ("one", "other", "field"),
    [
        ({"target": "jetson-orin-nano-8gb"}, {"target": "jetson-orin-nano-4gb"}, "target"),
        ({"power_mode": "15W"}, {"power_mode": "50W"}, "power_mode"),
        ({"tensorrt": "10.3"}, {"tensorrt": "10.7"}, "tensorrt"),
    ],
)
def test_a_bundle_says_what_it_was_made_for(one, other, field, tmp_path):
    path = small_config(tmp_path, precision="fp16", objective="latency")
    for options in (one, other):
        config = open_config(path, placement={"dla_cores": []}, **options)
        with pipeline(config, tmp_path) as p:
            document = p.bundle().to_json()
        assert document_of(read(document["path"]))[field] == options[field]


def test_other_calibration_inputs_give_other_golden_vectors(tmp_path):
    path = small_config(tmp_path, precision="fp16")
    ranges = []
    for scale in (1, 1000):
        data = np.full((2, 3, 16, 16), scale, np.float32)
        data[:, :, 0] = -scale
        np.save(tmp_path / f"{scale}.npy", data)
        config = open_config(path, calibration={"data": str(tmp_path / f"{scale}.npy")})
        with pipeline(config, tmp_path) as p:
            manifest = document_of(read(p.bundle().path))
        ranges.append(manifest["golden"][0]["inputs"]["x"]["high"])
    assert ranges == [1, 1000]


@pytest.mark.parametrize("damage", ["empty", "short", "gone"])
def test_damaged_blobs_are_made_again(damage, tmp_path):
    config = small_config(tmp_path)
    with pipeline(config, tmp_path) as p:
        before = p.build().accuracy
        weight = next(w for w in artefacts(p.context).weights.values() if w.name == "conv2.w#int8")
        blob = p.cache.blob_path(weight.digest)
    data = blob.read_bytes()
    if damage == "gone":
        blob.unlink()
    else:
        blob.write_bytes(b"" if damage == "empty" else data[:10])
    shutil.rmtree(tmp_path / "cache" / "steps" / "accuracy")
    with pipeline(config, tmp_path) as p:
        assert p.build().accuracy == before
    assert blob.read_bytes() == data


@pytest.mark.boards
def test_a_board_that_lost_its_blobs_gets_them_again(tmp_path):
    config = small_config(tmp_path)
    with pipeline(config, tmp_path) as p:
        p.deploy()
    shutil.rmtree(tmp_path / "cache" / "board" / "blobs")
    with pipeline(config, tmp_path) as p:
        (release,) = p.deploy().to_json()["releases"]
        assert release["bytes_sent"] > 10_000
        assert p.infer().bit_equal is True


@pytest.mark.boards
def test_what_a_board_notes_of_a_release_is_reported_each_time(tmp_path, monkeypatch):
    config = small_config(tmp_path)
    result, offer = BoardClient.job_result, BoardClient.offer

    def doubtful(deployment):
        assert deployment.health.notes == ()
        return replace(deployment, health=replace(deployment.health, notes=("another major",)))

    def known(self, *bundle):
        found = offer(self, *bundle)
        if found.deployment is None:
            return found
        return replace(found, deployment=doubtful(found.deployment))

    monkeypatch.setattr(BoardClient, "job_result", lambda self, id: doubtful(result(self, id)))
    monkeypatch.setattr(BoardClient, "offer", known)
    for reused in (False, True):
        with pipeline(config, tmp_path) as p:
            (release,) = p.deploy().releases
            wanted = (f"{release.board.name}: another major",)
            assert (release.reused, release.notes) == (reused, wanted)
            assert wanted[0] in p.context.session.notes


def test_check_names_the_file_that_was_requested_about(tmp_path):
    small_net(tmp_path / "a.onnx")
    shutil.copy(tmp_path / "a.onnx", tmp_path / "b.onnx")
    for name in ("a.onnx", "b.onnx"):
        document = edgekit.check(tmp_path / name, target="jetson-agx-orin-64gb").to_json()
        assert document["model"].endswith(name)


def test_options_change_a_configuration_and_not_its_file(tmp_path):
    path = small_config(tmp_path)
    config = open_config(path, precision="fp16")
    assert open_config(config, placement={"objective": "energy"}).file.precision == "fp16"
    bare = open_config(tmp_path / "small.onnx", target="jetson-agx-orin-64gb")
    changed = open_config(bare, precision="fp32")
    assert (changed.file.precision, changed.file.target) == ("fp32", "jetson-agx-orin-64gb")


def test_a_wrong_option_is_reported_as_an_option(tmp_path):
    from edgekit.errors import ConfigError

    with pytest.raises(ConfigError) as caught:
        open_config(small_config(tmp_path), precision="int9", placement={"objective": "speed"})
    assert [p.where for p in caught.value.problems] == [
        "option precision",
        "option placement.objective",
    ]


@pytest.mark.parametrize("name", ["1e5.onnx", "true.onnx", "Ünïcode näme.onnx", "a'b\"c.onnx"])
def test_names_of_models_are_only_names(name, tmp_path):
    small_net(tmp_path / name)
    document = edgekit.check(tmp_path / name, target="jetson-agx-orin-64gb").to_json()
    assert document["summary"]["layers"] > 5


def test_a_wrong_seed_is_refused():
    with pytest.raises(UsageError):
        open_config("builtin:light_resnet50?seed=abc", target="jetson-agx-orin-64gb")


@pytest.mark.whole
@pytest.mark.boards
def test_refit_reports_swapped_weights_from_unchanged_ones(tmp_path):
    config = small_config(tmp_path, precision="fp32")
    model = onnx.load(tmp_path / "small.onnx")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    # the same values under each other's names: the same blobs, another network
    tensors["bn.scale"].name, tensors["bn.bias"].name = "bn.bias", "bn.scale"
    onnx.save(model, tmp_path / "swapped.onnx")
    with pipeline(config, tmp_path) as p:
        (base,) = p.deploy().to_json()["releases"]
    with pipeline(config, tmp_path) as p:
        same = p.refit(tmp_path / "small.onnx").to_json()
    assert (same["changed"], same["digest"]) == (0, base["digest"])
    with pipeline(config, tmp_path) as p:
        assert p.infer().bit_equal is True
    with pipeline(config, tmp_path) as p:
        swapped = p.refit(tmp_path / "swapped.onnx").to_json()
    assert swapped["changed"] == 2
    assert swapped["digest"] != base["digest"]
