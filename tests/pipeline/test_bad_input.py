"""Bad input: one clear error, the contract's exit status, nothing left behind."""

import json
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from edgekit.cli import main
from tests.network.onnx_making import make
from tests.pipeline.nets import small_config

TARGET = "jetson-agx-orin-64gb"


def fails(capsys, *arguments):
    """Runs a command that must fail; returns its status and error object."""
    with pytest.raises(SystemExit) as caught:
        main.main([*map(str, arguments), "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return caught.value.code, json.loads(captured.out)["error"]


def graph(nodes, shape=(1, 3, 8, 8)):
    return make(nodes, {"x": shape}, ["y"])


def missing(path):
    return "model"


def cyclic(path):
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], "first"),
        helper.make_node("Relu", ["a"], ["b"], "second"),
        helper.make_node("Relu", ["b"], ["y"], "third"),
    ]
    onnx.save(graph(nodes), path)


def zero_size(path):
    onnx.save(graph([helper.make_node("Relu", ["x"], ["y"], "r")], shape=(0, 3, 8, 8)), path)


def too_many_elements(path):
    onnx.save(graph([helper.make_node("Relu", ["x"], ["y"], "r")], shape=(1 << 40, 3, 8, 8)), path)


def newline_in_a_name(path):
    onnx.save(graph([helper.make_node("Relu", ["x"], ["y"], "two\nlines")]), path)


@pytest.mark.parametrize("spoil", [zero_size, too_many_elements, newline_in_a_name, cyclic])
@pytest.mark.parametrize("command", ["check", "run"])
def test_models(spoil, command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path)
    path = tmp_path / "small.onnx"
    path.unlink()
    spoil(path)
    arguments = [command, path, "-t", TARGET] if command == "check" else [command, config]
    status, error = fails(capsys, *arguments)
    assert status == 2
    assert error["code"].startswith("model.")
    assert not (tmp_path / "edgekit-out").exists()


def board(tmp_path, **fields):
    config = small_config(tmp_path)
    entry = ", ".join(f"{key}: {value}" for key, value in fields.items())
    config.write_text(config.read_text() + f"deploy: {{boards: [{{name: lab, {entry}}}]}}\n")
    return config


def test_unreachable_board(tmp_path, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = board(tmp_path, host="127.0.0.1", port=port)
    status, error = fails(capsys, "deploy", config, "--out", tmp_path / "out")
    assert (status, error["code"]) == (3, "board.unreachable")
    assert "lab" in error["where"] + error["message"]


@pytest.mark.whole
@pytest.mark.boards
def test_unknown_and_wrong_host_keys(tmp_path, capsys):
    from edgekit.deployment.embedded_sshd import sshd

    with sshd(tmp_path / "board") as server:
        fields = {
            "host": "127.0.0.1",
            "port": server.port,
            "user": server.board.user,
            "key": server.board.key,
        }
        config = board(tmp_path, **fields)
        status, error = fails(capsys, "deploy", config, "--out", tmp_path / "out")
        assert (status, error["code"]) == (4, "board.unknown-host-key")
        assert server.board.host_key in error["message"] + error["hint"]
        wrong = "SHA256:" + "A" * 43
        config = board(tmp_path, **fields, host_key=f"'{wrong}'")
        status, error = fails(capsys, "deploy", config, "--out", tmp_path / "out")
        assert (status, error["code"]) == (4, "board.host-key-mismatch")
        # a board that does not know the signer refuses, until it is told to trust it
        config = board(
            tmp_path,
            **fields,
            host_key=f"'{server.board.host_key}'",
            root=tmp_path / "root",
            python=server.board.python,
        )
        status, error = fails(capsys, "deploy", config, "--out", tmp_path / "out")
        assert status == 4
        assert error["code"].startswith("bundle.")
        assert not (tmp_path / "root" / "apps" / "small" / "current").exists()
        with pytest.raises(SystemExit) as caught:
            main.main(["deploy", str(config), "--trust-key", "--json", "-q"])
        assert caught.value.code == 0
        assert (tmp_path / "root" / "apps" / "small" / "current").exists()


def packed(tmp_path, capsys):
    config = small_config(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main.main(
            [
                "bundle",
                str(config),
                "--out",
                str(tmp_path / "out"),
                "--full",
                str(tmp_path / "full"),
                "--json",
                "-q",
            ]
        )
    assert caught.value.code == 0
    capsys.readouterr()
    return config, tmp_path / "full"


@pytest.mark.few(3)
@pytest.mark.boards
@pytest.mark.parametrize("fault", ["engine", "manifest", "unsigned", "signature"])
def test_tampered_and_unsigned_bundles(fault, tmp_path, capsys):
    config, bundle = packed(tmp_path, capsys)
    manifest = bundle / "manifest.json"
    if fault == "engine":
        facts = json.loads(manifest.read_text())
        engine = facts["lanes"][0]["segments"][0]["engine"]
        data = bytearray((bundle / "blobs" / engine).read_bytes())
        data[len(data) // 2] ^= 1
        (bundle / "blobs" / engine).write_bytes(bytes(data))
    elif fault == "manifest":
        manifest.write_text(
            manifest.read_text().replace('"precision":"int8"', '"precision":"fp16"')
        )
    elif fault == "unsigned":
        (bundle / "manifest.json.sig").unlink()
    else:
        signature = (bundle / "manifest.json.sig").read_text().splitlines()
        signature[3] = signature[3][::-1]
        (bundle / "manifest.json.sig").write_text("\n".join(signature) + "\n")
    status, error = fails(capsys, "deploy", config, "--bundle", bundle)
    assert status == 4
    assert error["code"].partition(".")[0] in ("bundle", "blob")
    apps = tmp_path / "cache" / "board" / "apps"
    assert not (apps / "small" / "current").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_full_disk_for_results(tmp_path, capsys):
    config = small_config(tmp_path)
    small = tmp_path / "small-disk"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(small)], check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        status, error = fails(capsys, "run", config, "--out", small / "out")
        assert status == 3
        assert "space" in error["message"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_nan_weights_are_reported_and_not_hidden(tmp_path, capsys):
    config = small_config(tmp_path, precision="fp16")
    model = onnx.load(tmp_path / "small.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "conv2.b":
            value = onnx.numpy_helper.to_array(tensor).copy()
            value[0] = np.nan
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, "conv2.b"))
    onnx.save(model, tmp_path / "small.onnx")
    status, error = fails(capsys, "run", config, "--out", tmp_path / "out")
    assert status == 2
    assert error["code"] == "accuracy.nonfinite"


def test_an_accuracy_gate_reports_the_figures_and_the_steps(tmp_path, capsys):
    config = small_config(tmp_path, extra="accuracy: {metric: snr_db, min: 90}\n")
    with pytest.raises(SystemExit) as caught:
        main.main(["run", str(config), "--out", str(tmp_path / "out"), "--json", "-q"])
    assert caught.value.code == 1
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "accuracy.below-gate"
    assert document["accuracy"]["snr_db"] < 90
    assert [s["status"] for s in document["steps"]][-1] == "failed"
    assert not (tmp_path / "out" / "bundle.ekb").exists()


def test_a_file_that_is_missing_is_said_before_anything_is_built(tmp_path, capsys):
    config = small_config(tmp_path)
    files = ["--weights", tmp_path / "nope.onnx", "--out", tmp_path / "out"]
    status, error = fails(capsys, "refit", config, *files)
    assert (status, error["code"]) == (2, "model.missing")
    config.write_text(config.read_text() + "deploy: {sign_with: no-key}\n")
    with pytest.raises(SystemExit) as caught:
        main.main(["bundle", str(config), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert (caught.value.code, "no-key does not exist" in said) == (2, True)
    assert "calibrate" not in said
    assert not (tmp_path / "out").exists()


def test_a_wrong_path_of_a_bundle_is_bad_usage(tmp_path, capsys):
    config, path = small_config(tmp_path), tmp_path / "nope.ekb"
    status, error = fails(capsys, "deploy", config, "--bundle", path)
    assert (status, error["code"], error["where"]) == (2, "bundle.not-found", str(path))


@pytest.mark.parametrize("change", ["shape", "type"])
def test_refit_lists_weights_that_make_the_graph_invalid(change, tmp_path, capsys):
    config = small_config(tmp_path)
    model = onnx.load(tmp_path / "small.onnx")
    for tensor in model.graph.initializer:
        if tensor.name == "conv2.w":
            value = onnx.numpy_helper.to_array(tensor)
            value = value[:, :, :1, :1] if change == "shape" else value.astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(value, "conv2.w"))
    onnx.save(model, tmp_path / "other.onnx")
    status, error = fails(capsys, "refit", config, "--weights", tmp_path / "other.onnx")
    assert (status, error["code"]) == (2, "refit.mismatch")
    assert "conv2.w" in error["hint"]


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_with_one_json_document(number, tmp_path):
    config = small_config(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "edgekit", "run", str(config), "--json", "--out", tmp_path / "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "] plan" in line:
            process.send_signal(number)
            break
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert json.loads(out)["error"]["code"] == "interrupted"
