"""Packing: the same every time, only what the board's reader accepts, refits without a build."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundles.files import read, write
from edgekit.bundles.manifest import Bundle, golden_inputs, rewrite_record, tensor_io
from edgekit.bundles.pack import pack, with_weights
from edgekit.errors import BundleError, DataError
from edgekit.network.model import Network, Tensor
from edgekit_device.protocol.manifest import EngineEntry, PluginEntry
from tests.bundles import bundle_toys as toys


def test_the_same_inputs_give_the_same_bytes_in_another_process() -> None:
    program = "from tests.bundles.bundle_toys import toy_bundle; print(toy_bundle().digest, end='')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "77"},
    )
    assert done.stdout == toys.toy_bundle().digest


def test_manifest_is_canonical_and_its_digest_names_the_bundle() -> None:
    bundle = toys.toy_bundle()
    document = toys.document_of(bundle)
    again = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert bundle.manifest_bytes == again.encode() + b"\n"
    assert bundle.digest == hashlib.sha256(bundle.manifest_bytes).hexdigest()


def test_manifest_says_what_was_built() -> None:
    manifest = toys.document_of(toys.toy_bundle())
    assert manifest["inputs"] == [
        {
            "name": "x",
            "dtype": "float32",
            "shape": [1, 3, 8, 8],
            "format": "LINEAR",
            "strides": [768, 256, 32, 4],
        }
    ]
    assert manifest["placement"]["layers"][1] == ["s1", "DLA1", "int8", 1]
    assert manifest["placement"]["loadables"][0]["memory"]["managed_sram"] == 4096
    assert manifest["weights"]["q"]["bytes"] == 64
    assert [s["device"] for s in manifest["lanes"][0]["segments"]] == ["DLA0", "DLA1", "GPU"]
    kinds = [blob["kind"] for blob in manifest["blobs"].values()]
    assert sorted(kinds) == ["engine"] * 3 + ["golden"] * 2


def test_sizes_count_each_blob_once() -> None:
    bundle = toys.toy_bundle()
    blobs = sum(
        len(data) if isinstance(data, bytes) else data.nbytes for data in bundle.blobs.values()
    )
    assert bundle.stripped_bytes == len(bundle.manifest_bytes) + blobs
    weights = sum(array.nbytes for array in toys.values().values())
    assert bundle.full_bytes - bundle.stripped_bytes == weights


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "x" * 65, "naïve", "a\n"])
def test_a_name_that_cannot_be_a_folder_is_refused(name: str) -> None:
    with pytest.raises(BundleError) as caught:
        toys.toy_bundle(name=name)
    assert caught.value.code == "bundle.invalid"
    assert "at most 64, starting with a letter or digit" in caught.value.message


def test_a_build_whose_segments_do_not_fit_is_refused() -> None:
    built = toys.artefacts()
    share, segments = built.lanes[0]
    broken = replace(built, lanes=((share, segments[1:]),))
    with pytest.raises(BundleError, match="running order"):
        pack(
            name="toy",
            model=toys.toy_model(),
            network=toys.network(),
            plan=toys.plan(),
            artefacts=broken,
        )


def test_a_build_without_a_weights_value_is_refused() -> None:
    built = toys.artefacts()
    digest = built.weights["g"].digest
    lacking = {key: value for key, value in built.values.items() if key != digest}
    with pytest.raises(BundleError) as caught:
        pack(
            name="toy",
            model=toys.toy_model(),
            network=toys.network(),
            plan=toys.plan(),
            artefacts=replace(built, values=lacking),
        )
    assert caught.value.code == "bundle.incomplete"
    assert digest in caught.value.message


def test_refit_keeps_engines_and_changes_only_weights_and_golden() -> None:
    old, built = toys.toy_bundle(0), toys.artefacts(1)
    new = with_weights(old, built.weights, built.values, toys.golden(1), toys.toy_model(1))
    assert new.manifest_bytes == toys.toy_bundle(1).manifest_bytes
    assert toys.document_of(new)["lanes"] == toys.document_of(old)["lanes"]
    changed = set(new.weight_bytes) - set(old.weight_bytes)
    assert changed == {built.weights[name].digest for name in ("../w", "b", "q", "g")}


def test_libraries_of_plugins_travel_through_files_and_refits(tmp_path: Path) -> None:
    library = b"\x7fELF"
    digest = hashlib.sha256(library).hexdigest()
    plugins = (
        PluginEntry("MyOp", "1", "acme", digest, "libmine.so"),
        PluginEntry("Theirs", "2", "", None),
    )
    built = replace(toys.artefacts(), plugins=plugins, libraries={digest: library})
    bundle = pack(
        name="toy",
        model=toys.toy_model(),
        network=toys.network(),
        plan=toys.plan(),
        artefacts=built,
        golden=toys.golden(),
    )
    write(bundle, tmp_path / "toy.ekb", stripped=True)
    other = toys.artefacts(seed=5)
    refitted = with_weights(bundle, other.weights, other.values, toys.golden(seed=5))
    for one in (bundle, read(tmp_path / "toy.ekb"), refitted):
        assert one.manifest.plugins == plugins
        assert one.manifest.blobs[digest].kind == "library"
        assert bytes(one.blobs[digest]) == library
    lost = replace(built, libraries={})
    with pytest.raises(BundleError, match=r"plugins\[0\].library: no library blob"):
        pack(
            name="toy",
            model=toys.toy_model(),
            network=toys.network(),
            plan=toys.plan(),
            artefacts=lost,
            golden=toys.golden(),
        )


def test_the_record_of_rewrites_travels_through_files_and_refits(tmp_path: Path) -> None:
    record = {"schema": "edgekit.rewrites/1", "rewrites": [{"rewrite": "ä", "max_error": 1e-7}]}
    built = toys.artefacts()
    bundle = pack(
        name="toy",
        model=toys.toy_model(),
        network=toys.network(),
        plan=toys.plan(),
        artefacts=built,
        golden=toys.golden(),
        rewrites=record,
    )
    assert rewrite_record(bundle) == record
    for name in ("toy.ekb", "folder"):
        write(bundle, tmp_path / name)
        assert rewrite_record(read(tmp_path / name)) == record
    other = toys.artefacts(1)
    refitted = with_weights(bundle, other.weights, other.values, toys.golden(1))
    assert rewrite_record(refitted) == record
    assert rewrite_record(toys.toy_bundle()) is None
    assert "rewrites" not in toys.document_of(toys.toy_bundle())
    broken = replace(bundle, blobs={**bundle.blobs, toys.document_of(bundle)["rewrites"]: b"{"})
    with pytest.raises(BundleError, match="not JSON"):
        rewrite_record(broken)


def test_identical_engines_are_never_given_other_weights() -> None:
    bundle, same, other = toys.toy_bundle(), toys.artefacts(), toys.artefacts(1)
    digest = toys.document_of(bundle)["lanes"][0]["segments"][0]["engine"]

    def refitted_as(kind: str) -> Bundle:
        facts = EngineEntry("plan", "10.3.0.30", True, False, False, kind, None, (), ())
        return replace(bundle, manifest=replace(bundle.manifest, engines={digest: facts}))

    with pytest.raises(DataError, match="REFIT_IDENTICAL") as caught:
        with_weights(refitted_as("identical"), other.weights, other.values, toys.golden(1))
    assert caught.value.code == "refit.identical"
    for name in ("../w", "b", "q", "g"):
        assert name in (caught.value.hint or "")
    assert "scale" not in (caught.value.hint or "")
    # equal weights, or an engine that takes any, get as far as the entry that is no whole one
    for kind, built, seed in (("identical", same, 0), ("any", other, 1)):
        with pytest.raises(BundleError, match="engines"):
            with_weights(refitted_as(kind), built.weights, built.values, toys.golden(seed))


def test_refit_names_every_weight_that_does_not_fit() -> None:
    bundle, built = toys.toy_bundle(), toys.artefacts()
    weights = dict(built.weights)
    del weights["b"]
    weights["q"] = replace(weights["q"], dtype="float32")
    weights["g"] = replace(weights["g"], shape=(512, 11))
    weights["extra"] = weights["scale"]
    with pytest.raises(DataError) as caught:
        with_weights(bundle, weights, built.values, [])
    assert caught.value.code == "refit.mismatch"
    for name in ("b (missing)", "q (float32", "g (float32 [512, 11]", "extra (not in"):
        assert name in caught.value.hint


def _splitmix64(state: int) -> int:
    """Vigna's splitmix64.c, word for word."""
    mask = (1 << 64) - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_splitmix64_gives_the_published_first_number() -> None:
    # the first output from seed 1234567, as Rosetta Code's splitmix64 task lists it
    assert _splitmix64(1234567) == 6457827717110365317


def test_golden_inputs_follow_the_written_formula() -> None:
    tensors = {
        "a": Tensor("a", (2, 3), "float32"),
        "n": Tensor("n", (5,), "int64"),
        "m": Tensor("m", (4,), "bool"),
        "h": Tensor("h", (3,), "float16"),
    }
    net = Network("n", (), tensors, ("a", "n", "m", "h"), ())
    ranges = {"a": (-2.1, 2.6), "n": (0, 1000), "m": (0, 1), "h": (0, 1)}
    seed = (1 << 63) - 1
    found = golden_inputs(net, seed, ranges)

    def unit(position: int, index: int) -> int:
        return _splitmix64((seed + (position << 32) + index) % (1 << 64)) >> 40

    low, high = np.float32(-2.1), np.float32(2.6)
    for i, value in enumerate(found["a"].reshape(-1)):
        assert value == low + (high - low) * np.float32(unit(0, i) / 2**24)
    assert found["n"].tolist() == [int(1000 * (unit(1, i) / 2**24)) for i in range(5)]
    assert found["m"].tolist() == [unit(2, i) >= 2**23 for i in range(4)]
    assert found["h"].dtype == np.float16
    assert found["a"].shape == (2, 3)


def test_tensor_io_of_a_scalar_has_no_strides() -> None:
    assert tensor_io(Tensor("s", (), "int64")).strides == ()
