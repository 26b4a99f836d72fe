"""``edgekit_device.load``: what a user's own program on the board meets."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import edgekit_device
from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle, golden_inputs
from edgekit.bundles.sign import sign
from edgekit_device.arrays.npz import write_npz
from edgekit_device.benchmark.measure import bench
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.errors import DeviceError
from edgekit_device.files import Extent
from edgekit_device.protocol.manifest import parse
from edgekit_device.runtime.model import Model
from tests.bundles import bundle_toys as toys
from tests.bundles.bundle_toys import document_of
from tests.edgekit_device.device_board import BoardFolder, Refused


@pytest.fixture(scope="session")
def signers(tmp_path_factory: pytest.TempPathFactory, signer_line: str) -> Path:
    file = tmp_path_factory.mktemp("signers") / "allowed_signers"
    file.write_text(signer_line + "\n")
    return file


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, toy: Bundle, signers: Path) -> Model:
    path = write(toy, tmp_path_factory.mktemp("b") / "toy.ekb", stripped=False)
    return edgekit_device.load(path, allowed_signers=signers)


def image(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("name", ["toy.ekb", "toy"])
def test_a_full_bundle_runs_from_a_file_and_a_folder(
    tmp_path: Path, toy: Bundle, signers: Path, name: str
) -> None:
    path = write(toy, tmp_path / name, stripped=False)
    found = edgekit_device.load(path, allowed_signers=signers)
    assert (found.name, found.signer, found.backend) == ("toy", "tests", "reference")
    assert (found.digest, found.devices) == (toy.digest, ["DLA0", "DLA1", "GPU"])
    x = image()
    np.testing.assert_array_equal(found({"x": x})["y"], toys.expected(0, {"x": x})["y"])


def test_threads_call_one_model(model: Model) -> None:
    images = [image(seed) for seed in range(24)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda x: model({"x": x})["y"], images))
    for x, y in zip(images, found, strict=True):
        np.testing.assert_array_equal(y, toys.expected(0, {"x": x})["y"])


def test_what_a_bundle_takes_is_told_before_it_is_loaded(
    tmp_path: Path, toy: Bundle, signers: Path
) -> None:
    path = write(toy, tmp_path / "toy.ekb", stripped=False)
    need = edgekit_device.memory_needed(path, allowed_signers=signers)
    manifest = parse(toy.manifest_bytes)
    assert manifest.requires is not None
    assert need.total == need.engines == manifest.requires.memory_bytes
    assert (need.contexts, need.device_memory) == ({}, 0)
    assert need.available is None or need.available > 0
    with pytest.raises(DeviceError) as caught:
        edgekit_device.memory_needed(path, allowed_signers=tmp_path / "nobody")
    assert caught.value.code.startswith("bundle.")


def test_the_board_says_what_an_app_takes(board: BoardFolder, toy: Bundle, installed: str) -> None:
    for place in ("apps/toy", f"apps/toy/releases/{installed}"):
        answer = board.command("memory", "--from", str(board.root / place))
        assert set(answer) == {"engines", "contexts", "device_memory", "total", "available"}
        assert answer["total"] == document_of(toy)["requires"]["memory_bytes"]


def test_memory_on_a_gpu_is_nothing_for_a_bundle_on_the_cpu(
    tmp_path: Path, toy: Bundle, signers: Path
) -> None:
    path = write(toy, tmp_path / "toy.ekb", stripped=False)
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(path, allowed_signers=signers, device_memory=object())
    assert caught.value.code == "model.no-gpu"


def test_a_release_and_an_app_folder_run(board: BoardFolder, installed: str) -> None:
    x = image()
    for place in ("apps/toy", f"apps/toy/releases/{installed}", "apps/toy/current"):
        for verify in (True, "full", False):
            found = edgekit_device.load(str(board.root / place), verify=verify)
            np.testing.assert_array_equal(found(x)["y"], toys.expected(0, {"x": x})["y"])


def test_a_stripped_bundle_says_what_is_missing(tmp_path: Path, toy: Bundle, signers: Path) -> None:
    path = write(toy, tmp_path / "toy.ekb")
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(path, allowed_signers=signers)
    assert caught.value.code == "blob.missing"
    assert "stripped" in caught.value.hint


def test_nothing_unsigned_or_unknown_is_loaded_unless_said(
    tmp_path: Path, toy: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_ROOT", str(tmp_path / "no-root"))
    signed = write(toy, tmp_path / "signed.ekb", stripped=False)
    unsigned = write(toys.toy_bundle(), tmp_path / "unsigned.ekb", stripped=False)
    for path, code in ((signed, "bundle.unknown-signer"), (unsigned, "bundle.unsigned")):
        with pytest.raises(DeviceError) as caught:
            edgekit_device.load(path)
        assert caught.value.code == code
        assert edgekit_device.load(path, trust_unsigned=True).signer is None


def test_the_default_root_says_who_may_sign(
    board: BoardFolder, tmp_path: Path, toy: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_ROOT", str(board.root))
    path = write(toy, tmp_path / "toy.ekb", stripped=False)
    assert edgekit_device.load(path).signer == "tests"


def test_trust_at_staging_does_not_bind_a_caller_with_his_own_signers(
    empty_board: BoardFolder, toy: Bundle, signers: Path, tmp_path: Path
) -> None:
    unsigned = toys.toy_bundle()
    release = empty_board.install(unsigned, "--trust-unsigned")
    place = empty_board.root / "apps/toy/releases" / release
    assert edgekit_device.load(place).signer is None
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(place, allowed_signers=signers)
    assert caught.value.code == "bundle.unsigned"


@pytest.mark.parametrize("kind", ["engine", "weight", "manifest", "signature"])
def test_one_flipped_bit_of_a_bundle_folder_is_refused(
    tmp_path: Path, toy: Bundle, signers: Path, kind: str
) -> None:
    folder = write(toy, tmp_path / "toy", stripped=False)
    digest = {
        "engine": document_of(toy)["lanes"][0]["segments"][1]["engine"],
        "weight": document_of(toy)["weights"]["b"]["digest"],
    }.get(kind)
    names = {"manifest": "manifest.json", "signature": "manifest.json.sig"}
    file = folder / names[kind] if digest is None else folder / "blobs" / digest
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    code = "bundle.bad-signature" if digest is None else "blob.digest-mismatch"
    for verify in (True, "full", False):
        with pytest.raises(DeviceError) as caught:
            edgekit_device.load(folder, allowed_signers=signers, verify=verify)
        assert caught.value.code == code


@pytest.mark.parametrize("kind", ["engine", "weight"])
def test_an_overwritten_blob_of_a_release_is_refused_on_every_path(
    board: BoardFolder, installed: str, toy: Bundle, kind: str
) -> None:
    document = document_of(toy)
    engine, weight = document["lanes"][0]["segments"][1]["engine"], document["weights"]["g"]
    file = board.blob({"engine": engine, "weight": weight["digest"]}[kind])
    good = file.read_bytes()
    inputs = write_npz({"x": image()})
    for data in (b"", good[:-4], good + b"\0", good[:-1] + bytes([good[-1] ^ 1])):
        file.write_bytes(data)
        for verify in (True, "full", False):
            with pytest.raises(DeviceError) as caught:
                edgekit_device.load(board.root / "apps/toy", verify=verify)
            assert caught.value.code == "blob.digest-mismatch"
            assert "changed" in caught.value.hint
    for command in ("infer", "selftest", "bench", "refit"):
        with pytest.raises(Refused) as refused:
            board.command(command, "--app", "toy", stdin=inputs)
        assert refused.value.code == "blob.digest-mismatch", command
    answer = board.command("serve", "--app", "toy", "--background")
    try:
        assert answer["serving"]["last_error"]["code"] == "blob.digest-mismatch"
    finally:
        board.command("serve-stop", "--app", "toy")
    file.write_bytes(good)
    edgekit_device.load(board.root / "apps/toy")


def test_what_was_hashed_is_what_runs(board: BoardFolder, installed: str, toy: Bundle) -> None:
    found = edgekit_device.load(board.root / "apps/toy")
    x = image()
    wanted = toys.expected(0, {"x": x})["y"]
    for digest in (*toy.blobs, *toy.weights):
        file = board.blob(digest)
        with file.open("r+b") as opened:  # the same file, as a mapping would see it
            opened.write(bytes(len(file.read_bytes())))
    np.testing.assert_array_equal(found({"x": x})["y"], wanted)


def test_a_large_blob_is_hashed_as_it_is_read(tmp_path: Path) -> None:
    data = np.random.default_rng(0).bytes((5 << 20) + 7)
    file = tmp_path / "blob"
    file.write_bytes(b"before" + data + b"after")
    part = Extent(file, 6, len(data))
    copy, digest = part.read(len(data))
    assert (bytes(copy), digest) == (data, hashlib.sha256(data).hexdigest())
    file.write_bytes(b"other")
    assert bytes(copy) == data  # a copy, not the file
    assert part.read(len(data)) == (b"", "")  # of another size: nothing is read


def test_a_release_that_was_never_refitted_is_hashed_whole(board: BoardFolder, toy: Bundle) -> None:
    board.send({**toy.blobs, **toy.weights})
    release = board.stage(toy)
    place = board.root / "apps/toy/releases" / release
    edgekit_device.load(place)
    file = board.blob(document_of(toy)["weights"]["g"]["digest"])
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(place)
    assert caught.value.code == "blob.digest-mismatch"


def test_an_app_without_a_release_is_said(board: BoardFolder, tmp_path: Path) -> None:
    (board.root / "apps/empty/releases").mkdir(parents=True)
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(board.root / "apps/empty")
    assert caught.value.code == "release.none"
    with pytest.raises(DeviceError) as caught:
        edgekit_device.load(tmp_path / "nowhere")
    assert caught.value.code == "bundle.not-found"


def test_a_model_outlives_its_release(board: BoardFolder, installed: str) -> None:
    found = edgekit_device.load(board.root / "apps/toy")
    board.command("remove", "--app", "toy")
    board.command("gc", "--grace-s", "0")
    x = image()
    np.testing.assert_array_equal(found({"x": x})["y"], toys.expected(0, {"x": x})["y"])


# inputs


def test_an_array_alone_is_the_one_input(model: Model) -> None:
    x = image()
    np.testing.assert_array_equal(model(x)["y"], model({"x": x})["y"])


def test_strided_inputs_and_nan_are_fine(model: Model) -> None:
    wide = np.random.default_rng(0).normal(size=(1, 3, 8, 16)).astype(np.float32)
    strided = wide[..., ::2]
    np.testing.assert_array_equal(model(strided)["y"], model(strided.copy())["y"])
    poisoned = image()
    poisoned[0, 0, 0, 0] = np.nan
    assert model(poisoned)["y"].shape == (1, 10)


BAD = {
    "unknown": ({"X": image()}, "input.unknown", "did you mean 'x'?"),
    "far": ({"image_tensor": image()}, "input.unknown", "'x' (float32 [1, 3, 8, 8])"),
    "missing": ({}, "input.missing", "'x' (float32 [1, 3, 8, 8])"),
    "dtype": ({"x": image().astype(np.float64)}, "input.dtype", ".astype('float32')"),
    "endian": ({"x": image().astype(">f4")}, "input.dtype", ".astype('float32')"),
    "list": ({"x": [1.0, 2.0]}, "input.dtype", ".astype('float32')"),
    "object": ({"x": np.array([{}])}, "input.dtype", ".astype('float32')"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_inputs_say_what_would_be_right(model: Model, case: str) -> None:
    inputs, code, hint = BAD[case]
    with pytest.raises(DeviceError) as caught:
        model(inputs)  # type: ignore[arg-type]
    assert caught.value.code == code
    assert hint in caught.value.hint


def test_a_wrong_shape_shows_both(model: Model) -> None:
    with pytest.raises(DeviceError) as caught:
        model({"x": image()[0]})
    assert "[3, 8, 8]" in caught.value.message
    assert "[1, 3, 8, 8]" in caught.value.message


# streams and measurements


def test_a_bad_frame_is_raised_at_its_place(model: Model) -> None:
    frames = [image(0), image(1), image(2)[0], image(3)]
    results = model.stream(frames)
    assert next(results)["y"].shape == (1, 10)
    assert next(results)["y"].shape == (1, 10)
    with pytest.raises(DeviceError) as caught:
        next(results)
    assert caught.value.code == "input.shape"


def test_bench_counts_every_lane(signing_key: Path, signers: Path, tmp_path: Path) -> None:
    bundle = toys.toy_bundle()
    lanes = json.loads(json.dumps(document_of(bundle)["lanes"] * 2))
    lanes[0]["share"], lanes[1]["share"] = 0.25, 0.75
    for segment in lanes[1]["segments"]:
        segment["device"] = "GPU"
    document = {**document_of(bundle), "lanes": lanes}
    data = json.dumps(document).encode()
    mixed = Bundle(parse(data), data, bundle.blobs, bundle.weights, sign(data, signing_key))
    path = write(mixed, tmp_path / "m", stripped=False)
    found = edgekit_device.load(path, allowed_signers=signers, threads=1)
    result = bench(found, {"x": image()}, BenchSettings(1, 0, 16))
    assert result.iterations == 16
    assert [(s.lane, s.index) for s in result.segments] == [
        (lane, index) for lane in (0, 1) for index in range(3)
    ]
    x = golden_inputs(toys.network(), 4, toys.RANGES)
    wanted = toys.expected(0, x)["y"]
    for outputs in found.stream([x] * 8):
        np.testing.assert_array_equal(outputs["y"], wanted)


def test_loading_leaves_no_files_open(board: BoardFolder, installed: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    found = edgekit_device.load(board.root / "apps/toy")
    del found
    assert len(os.listdir("/proc/self/fd")) <= before
