"""Refit of rewritten engines from the original ONNX, and the record in the bundle."""

import json
import re
from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgekit.bundles.files import read, write
from edgekit.bundles.manifest import rewrite_record
from edgekit.bundles.sign import allowed_signers_line
from edgekit.cli import main
from edgekit.config.loader import load_config
from edgekit.errors import BundleError, DataError
from edgekit.network.loading.load import load, open_inputs
from edgekit.network.session import session
from edgekit.network.writing import save
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.rewrite_proofs import verify_rewrites
from edgekit.pipeline.steps.rewrite import model, other_weights, used_rewrites
from edgekit.rewriting.provenance.other_weights import reweigh
from edgekit.rewriting.provenance.record import read_record
from tests.bundles.bundle_toys import document_of
from tests.pipeline.nets import small_config, small_net


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A configuration of the original, one of the rewritten file, and other weights of it."""
    path = tmp_path_factory.mktemp("refit")
    small_config(path, precision="fp16")
    small_net(path / "tuned.onnx", seed=4)
    with Pipeline(load_config(path / "small.yaml"), cache=Cache(path / "cache")) as pipeline:
        pipeline.rewrite(path / "out.onnx", path / "rewrite.json")
    text = (path / "small.yaml").read_text()
    (path / "rewritten.yaml").write_text(text.replace("small.onnx", "out.onnx"))
    return path


def opened(folder, name):
    return Pipeline(
        load_config(folder / name), out=folder / name[:-5], cache=Cache(folder / "cache")
    )


def test_other_weights_are_those_of_the_other_model_rewritten(folder):
    with opened(folder, "small.yaml") as pipeline:
        made = other_weights(pipeline.context, folder / "tuned.onnx")
    text = (folder / "small.yaml").read_text()
    (folder / "tuned.yaml").write_text(text.replace("small.onnx", "tuned.onnx"))
    with opened(folder, "tuned.yaml") as pipeline:
        expected = model(pipeline.context)
    assert made.digest == expected.digest
    assert read_record(made).original == load(folder / "tuned.onnx").digest


def test_a_rewritten_file_is_refitted_from_the_original_onnx_and_from_its_like(folder):
    with opened(folder, "rewritten.yaml") as pipeline:
        context = pipeline.context
        assert used_rewrites(context).applied == ()
        made = other_weights(context, folder / "tuned.onnx")
        small_net(folder / "classes.onnx", classes=7)
        with pytest.raises(DataError) as caught:
            other_weights(context, folder / "classes.onnx")
        # what rewriting the other model gives is as good
        save(made, folder / "tuned-out.onnx")
        again = other_weights(context, folder / "tuned-out.onnx")
    assert caught.value.code == "refit.mismatch"
    assert "fc.w (float32 [7, 32]" in caught.value.hint
    assert made.digest == reweigh(load(folder / "out.onnx"), load(folder / "tuned.onnx")).digest
    assert again.digest == made.digest


def test_open_sizes_of_the_original_are_the_rewritten_models(folder):
    proto = onnx.load(folder / "tuned.onnx")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(proto, folder / "open.onnx")
    assert open_inputs(folder / "open.onnx")
    with opened(folder, "rewritten.yaml") as pipeline:
        made = other_weights(pipeline.context, folder / "open.onnx")
        closed = other_weights(pipeline.context, folder / "tuned.onnx")
    assert made.digest == closed.digest


@pytest.mark.boards
def test_the_refit_command_gives_a_rewritten_engine_the_originals_weights(
    folder, monkeypatch, capsys
):
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main.main([*map(str, arguments), "--out", str(folder / "board"), "--json"])
        out = capsys.readouterr()
        assert caught.value.code == 0, out.out + out.err
        # every step has its line, also where the board serves a refit already
        steps = re.findall(r"^\[(\d+)/(\d+)\] ", out.err, re.MULTILINE)
        assert [int(number) for number, _ in steps] == list(range(1, int(steps[0][1]) + 1))
        return json.loads(out.out)

    config = folder / "rewritten.yaml"
    document = run("refit", config, "--weights", folder / "tuned.onnx")
    assert document["changed"] == document["tensors"]
    (release,) = document["releases"]
    feed = {"x": np.random.default_rng(2).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    np.savez(folder / "input.npz", **feed)
    answer = run("infer", config, "--input", folder / "input.npz")
    assert answer["release"] == release["release"]
    got = np.load(folder / "board" / "outputs.npz")["y"]
    expected, old = (
        session(load(folder / name)).run(None, feed)[0] for name in ("tuned.onnx", "small.onnx")
    )
    assert np.abs(got - expected).max() < 0.01 < np.abs(got - old).max()


def test_the_bundle_has_the_record_and_its_proofs_hold(folder, monkeypatch):
    with opened(folder, "small.yaml") as pipeline:
        packed = pipeline.bundle().to_json()
        bundle = pipeline.packed()
    record = rewrite_record(read(packed["path"]))
    assert record == json.loads((folder / "rewrite.json").read_text())
    assert record["model"] == load(folder / "small.onnx").digest
    assert record["rewritten"] == document_of(bundle)["model"]["digest"]
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    document = verify_rewrites(folder / "small.onnx", packed["path"]).to_json()
    assert document["holds"]
    assert document["same"]


def test_nothing_of_a_bundle_is_read_before_its_signature_is_judged(folder, monkeypatch):
    with opened(folder, "small.yaml") as pipeline:
        path, bundle = pipeline.bundle().path, pipeline.packed()
    small = folder / "small.onnx"

    def refused(record, **options):
        with pytest.raises(BundleError) as caught:
            verify_rewrites(small, record, **options)
        assert caught.value.exit_code == 4
        return caught.value

    # no key of its own, and none that the machine trusts
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "elsewhere"))
    monkeypatch.setenv("EDGEKIT_ROOT", str(folder / "nowhere"))
    error = refused(path)
    assert error.code == "bundle.unknown-signer"
    assert "--trust-unsigned" in error.hint
    assert verify_rewrites(small, path, trust_unsigned=True).holds
    (folder / "nowhere").mkdir()
    line = allowed_signers_line(folder / "cache" / "keys" / "ed25519.pub")
    (folder / "nowhere" / "allowed_signers").write_text(line + "\n")
    assert verify_rewrites(small, path).holds
    bare = write(replace(bundle, signature=None), folder / "unsigned.ekb")
    assert refused(bare).code == "bundle.unsigned"
    assert verify_rewrites(small, bare, trust_unsigned=True).holds
    # what was changed afterwards is not trusted, however it is asked; nor is it parsed
    broken = write(replace(bundle, manifest_bytes=b"{"), folder / "broken.ekb")
    assert refused(broken, trust_unsigned=True).code == "bundle.bad-signature"


def test_a_bundle_without_rewrites_has_no_record(folder, monkeypatch):
    with opened(folder, "rewritten.yaml") as pipeline:
        path = pipeline.bundle().path
    assert rewrite_record(read(path)) is None
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))
    with pytest.raises(DataError) as caught:
        verify_rewrites(folder / "small.onnx", path)
    assert caught.value.code == "rewrite.no-record"
