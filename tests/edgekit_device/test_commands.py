"""The board's commands through the real zipapp: the good way, and everything that it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.manifest import Bundle, golden_inputs
from edgekit.bundles.sign import allowed_signers_line, ensure_key, sign
from tests.bundles import bundle_toys as toys
from tests.bundles.bundle_toys import document_of
from tests.edgekit_device.device_board import BoardFolder, Refused, bench_option, envelope, frames


def _python38() -> str | None:
    """A Python of the boards' version, if this machine has one (a pyenv shim alone is none)."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser() / "versions"
    for program in [shutil.which("python3.8"), *map(str, pyenv.glob("3.8.*/bin/python3.8"))]:
        if program:
            done = subprocess.run([program, "-c", ""], capture_output=True, check=False)
            if done.returncode == 0:
                return program
    return None


PYTHON38 = _python38()


def refused(board: BoardFolder, *words: str, stdin: bytes = b"") -> Refused:
    with pytest.raises(Refused) as caught:
        board.raw(*words, stdin=stdin)
    return caught.value


def resigned(bundle: Bundle, manifest: bytes, key: Path) -> bytes:
    document = {"manifest": manifest.decode(), "signature": sign(manifest, key).decode()}
    return json.dumps(document).encode()


def with_field(bundle: Bundle, change: dict[str, object]) -> bytes:
    return json.dumps({**document_of(bundle), **change}, sort_keys=True).encode() + b"\n"


# the way through


def test_hello_describes_the_board_and_creates_nothing(empty_board: BoardFolder) -> None:
    hello = empty_board.command("hello")
    assert hello["schema"] == "edgekit.device/1"
    assert hello["loader"] == hashlib.sha256(empty_board.loader.read_bytes()).hexdigest()
    assert hello["numpy"] == np.__version__
    assert hello["backends"] == ["reference", "tensorrt"]
    assert hello["free_bytes"] > 0
    assert not empty_board.root.exists()


def test_hello_works_without_numpy(empty_board: BoardFolder) -> None:
    # -S leaves out site-packages, where NumPy and ONNX Runtime are
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(empty_board.loader), "hello"],
        capture_output=True,
        check=True,
    )
    hello = json.loads(done.stdout)
    assert (hello["numpy"], hello["onnxruntime"]) == (None, None)


@pytest.mark.skipif(PYTHON38 is None, reason="no python3.8 on the path")
def test_hello_works_on_the_boards_python(empty_board: BoardFolder) -> None:
    assert PYTHON38
    done = subprocess.run(
        [PYTHON38, str(empty_board.loader), "hello"], capture_output=True, check=True
    )
    assert json.loads(done.stdout)["python"].startswith("3.8.")


def test_from_nothing_to_outputs_that_equal_the_unstripped_build(
    board: BoardFolder, toy: Bundle
) -> None:
    everything = {**toy.blobs, **toy.weights}
    requested = json.dumps([*everything, *everything]).encode()
    assert board.command("missing", stdin=requested)["missing"] == list(everything)
    sent = board.send(everything)
    assert sent == {"received": len(everything), "bytes": toy.full_bytes - len(toy.manifest_bytes)}
    assert board.command("missing", stdin=requested)["missing"] == []
    staged = board.command("stage", stdin=envelope(toy))
    assert staged == {
        "app": "toy",
        "release": f"000001-{toy.digest[:12]}",
        "digest": toy.digest,
        "signer": "tests",
        "reused": False,
        "missing_weights": [],
    }
    assert refused(board, "switch", "--app", "toy", "--release", staged["release"]).code == (
        "release.not-ready"
    )
    refit = board.command("refit", "--app", "toy", "--release", staged["release"])
    assert (refit["weights"], refit["engines"], refit["reused"]) == (5, 3, False)
    tested = board.command("selftest", "--app", "toy", "--release", staged["release"])
    assert tested["bit_equal"]
    assert [case["seed"] for case in tested["cases"]] == [7, 8]
    switched = board.command("switch", "--app", "toy", "--release", staged["release"])
    assert switched == {"app": "toy", "current": staged["release"], "previous": None}
    x = np.random.default_rng(5).normal(size=(1, 3, 8, 8)).astype(np.float32)
    outputs = board.infer("toy", x=x)
    np.testing.assert_array_equal(outputs["y"], toys.expected(0, {"x": x})["y"])
    assert not list((board.root / "tmp").iterdir())


def test_staging_again_reuses_the_release(board: BoardFolder, installed: str, toy: Bundle) -> None:
    release = installed
    again = board.command("stage", stdin=envelope(toy))
    assert (again["release"], again["reused"]) == (release, True)
    assert board.command("refit", "--app", "toy")["reused"] is True


def test_a_refit_sends_only_the_weights_that_changed(
    board: BoardFolder, installed: str, toy: Bundle, toy2: Bundle
) -> None:
    everything = {**toy2.blobs, **toy2.weights}
    missing = board.command("missing", stdin=json.dumps(list(everything)).encode())["missing"]
    engines = {d for d, blob in document_of(toy2)["blobs"].items() if blob["kind"] == "engine"}
    assert not engines & set(missing)
    assert document_of(toy2)["weights"]["scale"]["digest"] not in missing
    board.install(toy2)
    x = golden_inputs(toys.network(), 3, toys.RANGES)
    np.testing.assert_array_equal(board.infer("toy", **x)["y"], toys.expected(1, x)["y"])


# what is refused


def test_nothing_of_an_unsigned_bundle_is_accepted(board: BoardFolder, toy: Bundle) -> None:
    board.send({**toy.blobs, **toy.weights})
    unsigned = json.dumps({"manifest": toy.manifest_bytes.decode(), "signature": None}).encode()
    error = refused(board, "stage", stdin=unsigned)
    assert error.code == "bundle.unsigned"
    assert "deploy.sign_with" in error.hint
    assert not (board.root / "apps").exists()
    trusted = board.command("stage", "--trust-unsigned", stdin=unsigned)
    assert trusted["signer"] is None
    # the trust given there holds for the release's later commands
    board.command("refit", "--app", "toy", "--release", trusted["release"])


def test_verify_needs_no_blob_and_leaves_nothing(
    board: BoardFolder, toy: Bundle, signing_key: Path
) -> None:
    before = board.files()
    assert board.command("verify", stdin=envelope(toy)) == {"signer": "tests"}
    unsigned = json.dumps({"manifest": toy.manifest_bytes.decode(), "signature": None}).encode()
    assert refused(board, "verify", stdin=unsigned).code == "bundle.unsigned"
    assert board.command("verify", "--trust-unsigned", stdin=unsigned) == {"signer": None}
    other = resigned(toy, with_field(toy, {"schema": "edgekit.bundle/9"}), signing_key)
    assert refused(board, "verify", stdin=other).code.startswith("manifest.")
    assert board.files() == before


def test_an_unknown_key_is_refused(board: BoardFolder, toy: Bundle, tmp_path: Path) -> None:
    stranger = ensure_key(tmp_path / "stranger")
    stdin = resigned(toy, toy.manifest_bytes, stranger)
    board.send(toy.blobs)
    assert refused(board, "stage", stdin=stdin).code == "bundle.unknown-signer"
    line = allowed_signers_line(tmp_path / "stranger.pub", "stranger")
    board.trust(line)
    assert board.command("stage", stdin=stdin)["signer"] == "stranger"


def test_a_board_without_keys_trusts_nobody(empty_board: BoardFolder, toy: Bundle) -> None:
    error = refused(empty_board, "stage", stdin=envelope(toy))
    assert error.code == "bundle.unknown-signer"
    assert not empty_board.root.exists()


def test_missing_engines_are_named_and_weights_listed(board: BoardFolder, toy: Bundle) -> None:
    error = refused(board, "stage", stdin=envelope(toy))
    assert error.code == "blob.missing"
    assert error.where in toy.blobs
    board.send(toy.blobs)
    staged = board.command("stage", stdin=envelope(toy))
    assert sorted(staged["missing_weights"]) == sorted(toy.weights)
    error = refused(board, "refit", "--app", "toy", "--release", staged["release"])
    assert error.code == "blob.missing"
    assert error.where in toy.weights


@pytest.mark.parametrize("kind", ["engine", "golden"])
def test_a_rotten_blob_stops_the_stage(board: BoardFolder, toy: Bundle, kind: str) -> None:
    board.send({**toy.blobs, **toy.weights})
    digest = next(d for d, blob in document_of(toy)["blobs"].items() if blob["kind"] == kind)
    _flip(board.blob(digest))
    assert refused(board, "stage", stdin=envelope(toy)).code == "blob.digest-mismatch"
    # reading them again finds it, and what is sent anew mends it
    requested = json.dumps([digest]).encode()
    assert board.command("missing", stdin=requested)["missing"] == []
    assert board.command("missing", "--verify", stdin=requested)["missing"] == [digest]
    board.send({digest: toy.blobs[digest]})
    board.stage(toy)


@pytest.mark.parametrize("kind", ["engine", "golden", "manifest.json", "manifest.json.sig"])
def test_what_rots_after_the_switch_is_found_at_the_next_use(
    board: BoardFolder, installed: str, toy: Bundle, kind: str
) -> None:
    release = installed
    if kind.startswith("manifest"):
        file = board.root / "apps/toy/releases" / release / kind
    else:
        file = board.blob(
            next(d for d, blob in document_of(toy)["blobs"].items() if blob["kind"] == kind)
        )
    _flip(file)
    code = "bundle.bad-signature" if kind.startswith("manifest") else "blob.digest-mismatch"
    assert refused(board, "selftest", "--app", "toy").code == code


@pytest.mark.parametrize("name", ["b", "g"])
@pytest.mark.parametrize("fault", ["shape", "dtype", "name"])
def test_weights_that_do_not_fit_the_engines_are_named(
    board: BoardFolder, toy: Bundle, signing_key: Path, name: str, fault: str
) -> None:
    weights = json.loads(json.dumps(document_of(toy)["weights"]))
    entry = weights[name]
    if fault == "shape":
        entry["shape"] = [1, *entry["shape"]]
    elif fault == "dtype":
        entry["dtype"] = "int32"
    else:
        weights[name + "_"] = weights.pop(name)
    board.send({**toy.blobs, **toy.weights})
    manifest = with_field(toy, {"weights": weights})
    staged = board.command("stage", stdin=resigned(toy, manifest, signing_key))
    error = refused(board, "refit", "--app", "toy", "--release", staged["release"])
    assert error.code == "refit.mismatch"
    assert repr(name) in error.message


@pytest.mark.parametrize("command", ["refit", "switch", "rollback", "remove", "infer", "gc"])
def test_app_names_never_become_other_paths(board: BoardFolder, command: str) -> None:
    (board.root.parent / "toy").mkdir()
    before = board.files()
    options = ["--release=000001-aaaaaaaaaaaa"] if command == "switch" else []
    assert refused(board, command, "--app=../../toy", *options).code == "app.bad-name"
    assert board.files() == before
    assert (board.root.parent / "toy").is_dir()


@pytest.mark.parametrize("command", ["refit", "switch", "remove", "selftest"])
def test_commands_refuse_release_names_that_climb_or_are_empty(
    board: BoardFolder, installed: str, command: str
) -> None:
    for name in ("../releases/" + installed, ""):
        error = refused(board, command, "--app=toy", "--release=" + name)
        assert error.code == "release.unknown"
    assert refused(board, command, "--app=", "--release=" + installed).code == "app.bad-name"


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "x"])
def test_a_signed_bundle_cannot_name_another_folder(
    board: BoardFolder, toy: Bundle, signing_key: Path, name: str
) -> None:
    board.send(toy.blobs)
    stdin = resigned(toy, with_field(toy, {"name": name}), signing_key)
    error = refused(board, "stage", "--app", "toy", stdin=stdin)
    assert error.code == ("bundle.wrong-app" if name == "x" else "manifest.invalid")
    assert not (board.root / "apps").exists()


def test_tensor_names_are_only_names(
    board: BoardFolder, installed: str, toy: Bundle, signing_key: Path, tmp_path: Path
) -> None:
    # the toy's first weight is called "../w", and it ran in the tests above
    assert "../w" in document_of(toy)["weights"]
    release = installed
    assert not list(tmp_path.rglob("w"))
    folder = board.root / "apps/toy/releases" / release
    assert sorted(p.name for p in folder.iterdir()) == [
        "manifest.json",
        "manifest.json.sig",
        "refit.json",
        "release.json",
    ]


def test_an_unknown_backend_is_refused(board: BoardFolder, toy: Bundle, signing_key: Path) -> None:
    board.send({**toy.blobs, **toy.weights})
    requires = dict(document_of(toy)["requires"], backend="abacus")
    change = {"backend": "abacus", "requires": requires}
    stdin = resigned(toy, with_field(toy, change), signing_key)
    staged = board.command("stage", stdin=stdin)
    error = refused(board, "refit", "--app", "toy", "--release", staged["release"])
    assert (error.code, error.hint) == ("backend.unknown", "available: reference, tensorrt")


def test_an_engine_may_not_read_files_of_the_board(
    board: BoardFolder, toy: Bundle, signing_key: Path
) -> None:
    segment = document_of(toy)["lanes"][0]["segments"][0]
    engine = toy.blobs[segment["engine"]]
    assert isinstance(engine, bytes)
    evil = engine.replace(b"stripped", b"passwd__")
    digest = hashlib.sha256(evil).hexdigest()
    lanes = json.loads(json.dumps(document_of(toy)["lanes"]))
    lanes[0]["segments"][0]["engine"] = digest
    blobs = {**document_of(toy)["blobs"], digest: {"bytes": len(evil), "kind": "engine"}}
    board.send({**toy.blobs, **toy.weights, digest: evil})
    stdin = resigned(toy, with_field(toy, {"lanes": lanes, "blobs": blobs}), signing_key)
    staged = board.command("stage", stdin=stdin)
    error = refused(board, "refit", "--app", "toy", "--release", staged["release"])
    assert error.code == "engine.invalid"
    assert "outside" in error.message


# transfers


def _garbage(size: int) -> tuple[str, bytes]:
    data = os.urandom(size)
    return hashlib.sha256(data).hexdigest(), data


def test_a_size_beyond_the_disk_is_refused_before_a_byte_is_read(board: BoardFolder) -> None:
    line = json.dumps({"digest": "a" * 64, "bytes": 1 << 60}).encode() + b"\n"
    error = refused(board, "receive", stdin=line)
    assert error.code == "board.disk-full"
    assert "free" in error.message


def test_a_full_disk_leaves_the_store_as_it_was(board: BoardFolder) -> None:
    small, large = _garbage(1000), _garbage(2_000_000)
    before = board.files()
    done = _limited(board, 1_000_000, ["receive"], frames([small, large]))
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (4, "board.disk-full")
    blob = str(board.blob(small[0]).relative_to(board.root))
    # of the large one what fitted is kept, for when there is room
    assert board.files() - before <= {blob, "lock", f"partial/{large[0]}"}
    assert (board.root / "partial" / large[0]).read_bytes() == large[1][:1_000_000]
    assert not list((board.root / "tmp").iterdir())


LONG = {
    "bench": {"duration_s": 600, "iterations": 1},
    "bench warming up": {"warmup_ms": 600_000},
}


@pytest.mark.parametrize("what", LONG)
def test_a_long_command_stops_when_its_host_goes(
    board: BoardFolder, installed: str, what: str
) -> None:
    argv = board.argv("bench", "--app", "toy", "--watch-stdin=0", bench_option(**LONG[what]))
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    with pytest.raises(subprocess.TimeoutExpired):  # it runs, as long as the host is there
        process.wait(1.0)
    process.stdin.close()
    assert process.wait(120.0) == 143
    assert process.stdout
    assert process.stdout.read() == b""
    process.stdout.close()


def test_input_that_was_cut_off_is_not_run(board: BoardFolder, installed: str) -> None:
    error = refused(board, "infer", "--app", "toy", "--watch-stdin=1000", stdin=b"PK")
    assert error.code == "transfer.truncated"


def test_a_watched_command_answers_while_its_input_is_open(
    board: BoardFolder, installed: str
) -> None:
    argv = board.argv("selftest", "--app", "toy", "--watch-stdin=0")
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.wait(300.0) == 0
    out, err = process.communicate()
    assert json.loads(out)["ok"]
    assert err == b""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ("ModuleNotFoundError('none', name='onnxruntime')", "board.no-onnxruntime"),
        ("ModuleNotFoundError('part', name='onnxruntime.capi')", "loader.internal"),
        ("ImportError('cut off')", "loader.internal"),
    ],
)
def test_a_runtime_that_is_there_but_broken_is_not_called_missing(
    board: BoardFolder,
    installed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    raised: str,
    code: str,
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "onnxruntime.py").write_text(f"raise {raised}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    assert refused(board, "selftest", "--app", "toy").code == code


# housekeeping


def test_rollback_goes_back_and_never_to_what_was_taken_back(
    board: BoardFolder, toy: Bundle, toy2: Bundle
) -> None:
    assert refused(board, "rollback", "--app", "toy").code == "app.unknown"
    first = board.install(toy)
    assert refused(board, "rollback", "--app", "toy").code == "release.no-previous"
    second = board.install(toy2)
    assert os.readlink(board.root / "apps/toy/current") == f"releases/{second}"
    back = board.command("rollback", "--app", "toy", "--reason", "false alarms")
    taken = back.pop("taken_back")
    assert back == {"app": "toy", "current": first, "previous": second, "from": second}
    assert (taken["release"], taken["reason"]) == (second, "false alarms")
    x = golden_inputs(toys.network(), 1, toys.RANGES)
    np.testing.assert_array_equal(board.infer("toy", **x)["y"], toys.expected(0, x)["y"])
    switch = ("switch", "--app", "toy", "--release", second)
    # the hint has the command of the board, too
    for words, code in (
        (("rollback", "--app", "toy"), "release.no-previous"),
        (("rollback", "--app", "toy", "--release", second), "install.taken-back"),
        (switch, "install.taken-back"),
    ):
        error = refused(board, *words)
        assert error.code == code
        assert error.hint.endswith(
            "edgekit deploy CONFIG --again (on the board: edgekit_device.pyz "
            + " ".join((*switch, "--again)"))
        )

    def backs() -> dict[str, Any]:
        rows = board.command("releases", "--app", "toy")["apps"]["toy"]["releases"]
        return {one["id"]: one["taken_back"] for one in rows}

    assert backs() == {first: None, second: taken}
    assert board.command(*switch, "--again")["current"] == second
    assert backs() == {first: None, second: None}


def test_rollback_after_a_switch_that_was_cut_in_the_middle(
    board: BoardFolder, installed: str, toy: Bundle, toy2: Bundle
) -> None:
    first, second = installed, board.install(toy2)
    # "previous" was renamed, "current" was not
    (board.root / "apps/toy/previous").unlink()
    (board.root / "apps/toy/previous").symlink_to(f"releases/{second}")
    assert board.command("rollback", "--app", "toy")["current"] == first


def test_gc_keeps_what_is_named_and_used(
    board: BoardFolder, installed: str, toy: Bundle, toy2: Bundle
) -> None:
    first, second = installed, board.install(toy2)
    stray, data = _garbage(5000)
    board.send({stray: data})
    young = board.command("gc", "--keep", "1")
    retained = {"removed_releases": [], "damaged_releases": []}
    assert young == {**retained, "removed_blobs": 0, "freed_bytes": 0}
    swept = board.command("gc", "--keep", "1", "--grace-s", "0")
    assert swept == {**retained, "removed_blobs": 1, "freed_bytes": 5000}
    assert board.command("remove", "--app", "toy", "--release", first) == {"removed": [first]}
    swept = board.command("gc", "--keep", "1", "--grace-s", "0")
    only_first = set(toy.blobs) | set(toy.weights)
    only_first -= set(toy2.blobs) | set(toy2.weights)
    assert swept["removed_blobs"] == len(only_first)
    assert board.command("selftest", "--app", "toy")["bit_equal"]
    assert board.command("releases")["apps"]["toy"]["previous"] is None
    assert refused(board, "remove", "--app", "toy", "--release", second).code == "release.in-use"


def test_gc_prunes_the_oldest_releases_but_never_the_used(
    board: BoardFolder, installed: str, toy: Bundle, toy2: Bundle, signing_key: Path
) -> None:
    first, second = installed, board.install(toy2)
    extra = []
    for number in range(3):
        manifest = with_field(toy, {"power_mode": f"M{number}"})
        stdin = resigned(toy, manifest, signing_key)
        extra.append(board.command("stage", stdin=stdin)["release"])
    assert extra == sorted(extra)
    swept = board.command("gc", "--app", "toy", "--keep", "2", "--grace-s", "0")
    assert swept["removed_releases"] == extra[:1]
    left = [entry["id"] for entry in board.command("releases")["apps"]["toy"]["releases"]]
    assert left == [first, second, *extra[1:]]
    assert board.command("selftest", "--app", "toy", "--release", first)["ok"]


def test_gc_keeps_the_blobs_of_other_apps(
    board: BoardFolder, installed: str, toy: Bundle, signing_key: Path
) -> None:
    twin = toys.toy_bundle(0, "twin")
    board.install(twin.signed(sign(twin.manifest_bytes, signing_key)))
    assert board.command("remove", "--app", "toy")["removed"]
    assert not (board.root / "apps/toy").exists()
    board.command("gc", "--grace-s", "0")
    assert board.command("selftest", "--app", "twin")["ok"]
    board.command("remove", "--app", "twin")
    board.command("gc", "--grace-s", "0")
    assert not [path for path in (board.root / "blobs").rglob("*") if path.is_file()]


def test_trust_is_idempotent(board: BoardFolder, signer_line: str) -> None:
    stdin = json.dumps({"lines": [signer_line]}).encode()
    reported = board.command("trust", stdin=stdin)
    assert (reported["added"], reported["removed"], reported["signers"]) == (0, 0, ["tests"])


def test_wrong_arguments_are_json_too(board: BoardFolder) -> None:
    for words in (["dance"], [], ["refit"], ["bench", "--app", "a", "--iterations", "many"]):
        done = subprocess.run(
            [sys.executable, str(board.loader), *words], capture_output=True, check=False
        )
        assert done.returncode == 4
        assert json.loads(done.stdout)["error"]["code"] == "usage"
        assert done.stderr == b""


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def _limited(
    board: BoardFolder, size: int, words: list[str], stdin: bytes
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command that can write no file larger than ``size``."""
    program = (
        "import os, resource, sys;"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}));"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    command, *options = words
    return subprocess.run(
        [sys.executable, "-c", program, *board.argv(command, *options)],
        input=stdin,
        capture_output=True,
        check=False,
    )


def test_an_answer_that_its_file_has_no_space_for_is_an_error(board: BoardFolder) -> None:
    for command in (["hello"], ["releases", "--app", "none"], ["sample", "--count", "1"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                board.argv(*command), stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert done.returncode == 4
        error = json.loads(done.stderr)["error"]
        assert (error["code"], error["where"]) == ("board.disk-full", "standard output")


def test_signatures_need_no_space_on_a_disk(
    board: BoardFolder, toy: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/dev/full")
    assert board.command("verify", stdin=envelope(toy))["signer"] == "tests"
