"""`edgekit rewrite`: text and JSON, files, the list, and proofs repeated."""

from __future__ import annotations

import json
import os

import numpy as np
import onnx
import pytest

import edgekit
from edgekit.network.loading.load import load
from edgekit.network.session import session
from edgekit.network.writing import save
from edgekit.rewriting.proof.prove import Proof
from edgekit.rewriting.provenance import verification
from tests.command_line import typed
from tests.pipeline.nets import small_config, small_net
from tests.rewriting.nets import net, node, weight

ORIN = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewrite")
    small_net(path / "small.onnx")
    small_net(path / "other.onnx", seed=3)
    return path


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EDGEKIT_CACHE", str(folder / "cache"))

    def output_of(*arguments: object, status: int = 0) -> str:
        found = typed(*arguments, "-q", status=status)
        return found.out or found.err

    return output_of


@pytest.fixture
def written(run, folder):
    """out.onnx and rewrite.json of small.onnx."""
    return run("rewrite", "small.onnx", "-t", ORIN, "-o", "out.onnx", "--record", "rewrite.json")


def test_text_and_json_say_the_same(run, written):
    document = json.loads(run("rewrite", "small.onnx", "-t", ORIN, "--json"))
    assert document["schema"] == "edgekit.rewrite/1"
    before, after = document["before"], document["after"]
    lines = {line.split("  ")[0].strip(): line.split() for line in written.splitlines() if line}
    for key, row in (("loadables", "loadables"), ("transitions", "transitions")):
        assert lines[row][-2:] == [str(before[key]), str(after[key])]
    assert lines["layers on the DLA"][-3:] == [str(after["dla_layers"]), "of", str(after["layers"])]
    assert "predicted latency" in lines
    assert after["predicted"]["auto_us"] < before["predicted"]["auto_us"]
    assert after["predicted"]["clock"] == "predicted"
    assert (before["loadables"], after["loadables"]) == (2, 1)
    for row in document["rewrites"]:
        assert row["rewrite"] in written
        assert row["nodes"][0] in written
        assert row["max_error"] <= 1e-5
    assert "out.onnx" in written
    assert document["approximations"] == []
    assert document["file"] is None
    assert document["record"]["rewrites"] == document["rewrites"]
    assert document == edgekit.rewrite("small.onnx", target=ORIN).to_json()


def test_the_files_are_a_model_of_the_same_interface_and_its_record(folder, written):
    old, new = load(folder / "small.onnx"), load(folder / "out.onnx")
    onnx.checker.check_model(onnx.load(folder / "out.onnx"), full_check=True)
    for part in ("input", "output"):
        assert [v.SerializeToString() for v in getattr(old.proto.graph, part)] == [
            v.SerializeToString() for v in getattr(new.proto.graph, part)
        ]
    feed = {"x": np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)}
    a, b = (session(m, optimise=False).run(None, feed)[0] for m in (old, new))
    assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
    record = json.loads((folder / "rewrite.json").read_text())
    assert record["schema"] == "edgekit.rewrites/1"
    assert (record["model"], record["rewritten"]) == (old.digest, new.digest)


def test_a_rewritten_model_is_at_its_fixed_point(run, written):
    document = json.loads(run("rewrite", "out.onnx", "-t", ORIN, "--json"))
    assert document["rewrites"] == []
    assert document["before"] == document["after"]
    assert "nothing to rewrite" in run("rewrite", "out.onnx", "-t", ORIN)


def test_rewrites_are_chosen_by_name(run):
    def applied(*options):
        document = json.loads(run("rewrite", "small.onnx", "-t", ORIN, "--json", *options))
        return {row["rewrite"] for row in document["rewrites"]}

    assert applied("--enable", "global-average-pool") == {"global-average-pool"}
    assert applied("--enable", "none") == set()
    everything = applied("--enable", "all")
    assert "global-average-pool" not in applied("--disable", "global-average-pool,neg")
    assert len(everything) >= 2
    error = json.loads(
        run("rewrite", "small.onnx", "-t", ORIN, "--disable", "global-avg-pool", "--json", status=2)
    )["error"]
    assert "global-average-pool" in error["hint"]
    assert "empty" in run("rewrite", "small.onnx", "-t", ORIN, "--disable", "a,,b", status=2)
    assert "approximate" in run(
        "rewrite", "small.onnx", "-t", ORIN, "--allow-approx", "neg", status=2
    )


def test_an_approximation_is_applied_when_allowed_and_its_error_is_reported(run, folder):
    tensors = {"w": weight(8, 3, 1, 1), "v": weight(4, 8, 1, 1), "r": 2**0.5, "one": 1.0, "k": 0.5}
    nodes = [
        node("Conv", "x w", "c"),
        node("Div", "c r", "d"),
        node("Erf", "d", "e"),
        node("Add", "e one", "f"),
        node("Mul", "c f", "g"),
        node("Mul", "g k", "h"),
        node("Conv", "h v", "y"),
    ]
    save(net(nodes, {"x": (1, 3, 8, 8)}, ["y"], tensors), folder / "gelu.onnx")
    data = np.random.default_rng(0).standard_normal((3, 3, 8, 8)).astype(np.float32)
    np.savez(folder / "data.npz", x=data)
    command = ["rewrite", "gelu.onnx", "-t", ORIN, "--precision", "fp16"]
    assert json.loads(run(*command, "--json"))["approximations"] == []
    allowed = [*command, "--allow-approx", "approx-gelu-erf", "--data", "data.npz"]
    document = json.loads(run(*allowed, "--record", "approx.json", "-o", "gelu-out.onnx", "--json"))
    (found,) = document["approximations"]
    assert (found["rewrite"], found["inputs"]) == ("approx-gelu-erf", 3)
    assert "data.npz" in found["data"]
    assert found["note"].startswith("approx-gelu-erf changes results")
    before, after = (session(load(folder / name)) for name in ("gelu.onnx", "gelu-out.onnx"))
    errors = []
    for sample in data:
        a, b = (part.run(None, {"x": sample[None]})[0] for part in (before, after))
        errors.append(np.abs(a - b).max() / np.abs(a).max())
    assert found["max_error"] == pytest.approx(max(errors), rel=1e-3)
    assert 0 < found["rms_error"] < found["max_error"] < 1e-2
    assert document["rewrites"][-1]["max_error_float64"] is None
    text = run(*allowed)
    assert f"{found['max_error']:.1e}" in text
    assert "changes results" in text
    assert "no limit" in run("rewrite", "gelu.onnx", "--verify", "approx.json")


def test_a_proof_that_fails_exits_1_after_its_document(run, written, monkeypatch):
    monkeypatch.setattr(verification, "prove", lambda *a, **k: Proof(0.25, 0.0))
    out = run("rewrite", "small.onnx", "--verify", "rewrite.json", "--json", status=1)
    assert json.loads(out)["holds"] is False


def test_another_model_and_what_is_no_record_exit_2(run, written, folder):
    def code(*arguments):
        return json.loads(run("rewrite", *arguments, "--json", status=2))["error"]["code"]

    assert code("other.onnx", "--verify", "rewrite.json") == "rewrite.other-model"
    assert code("small.onnx", "--verify", "other.onnx") == "rewrite.no-record"
    assert code("small.onnx", "--verify", "missing.json") == "rewrite.record"
    (folder / "bad.json").write_text("[[[")
    assert code("small.onnx", "--verify", "bad.json") == "rewrite.record"


def test_an_interrupt_leaves_no_half_of_a_file(run, folder, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    before = {path.name for path in folder.iterdir()}
    run("rewrite", "small.onnx", "-t", ORIN, "-o", "half.onnx", "--record", "h.json", status=130)
    assert {path.name for path in folder.iterdir()} - {"cache"} == before - {"cache"}


def test_a_configuration_is_rewritten_and_verified_as_it_says(run, folder, monkeypatch):
    config = small_config(folder / "config", extra="rewrite: {disable: [global-average-pool]}\n")
    document = json.loads(run("rewrite", config, "--json", "--record", folder / "c.json"))
    assert "global-average-pool" not in {row["rewrite"] for row in document["rewrites"]}
    assert "the recorded network" in run("rewrite", config, "--verify", folder / "c.json")
