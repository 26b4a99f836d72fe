"""What a manifest says a board must have, and what travels to be judged by."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.manifest import BundleSamples, golden_inputs
from edgekit.bundles.pack import pack, with_weights
from edgekit.errors import BundleError
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import EngineEntry, MemorySettings, parse
from edgekit_device.protocol.memory import context_bytes
from tests.bundles import bundle_toys as toys
from tests.bundles.bundle_toys import document_of

PARTS: dict[str, Any] = {
    "name": "toy",
    "model": toys.toy_model(),
    "network": toys.network(),
    "plan": toys.plan(),
    "golden": toys.golden(),
    "mode": "split",
}


def samples(seed: int = 0, least: float | None = 0.9) -> BundleSamples:
    inputs = golden_inputs(toys.network(), 3, toys.RANGES)
    return BundleSamples("cosine", "toys", True, least, [(inputs, toys.expected(seed, inputs))])


def test_samples_are_signed_blobs() -> None:
    bundle = pack(artefacts=toys.artefacts(), samples=samples(), **PARTS)
    manifest = parse(bundle.manifest_bytes)
    assert manifest.samples is not None
    assert manifest.requires is not None
    assert (manifest.samples.synthetic, manifest.samples.least) == (True, 0.9)
    case = manifest.samples.cases[0]
    wanted = toys.expected(0, golden_inputs(toys.network(), 3, toys.RANGES))["y"]
    assert bundle.blobs[case.outputs["y"]].tobytes() == wanted.tobytes()  # type: ignore[union-attr]
    assert manifest.requires.disk_bytes == sum(manifest.sizes().values())
    # the same inputs give the same bytes
    again = pack(artefacts=toys.artefacts(), samples=samples(), **PARTS)
    assert again.manifest_bytes == bundle.manifest_bytes


def test_other_weights_take_nothing_of_the_old_ones_answers() -> None:
    bundle = pack(artefacts=toys.artefacts(), samples=samples(), **PARTS)
    other = toys.artefacts(1)
    made = with_weights(bundle, other.weights, other.values, toys.golden(1))
    assert made.manifest.samples is None
    kinds = {blob["kind"] for blob in document_of(made)["blobs"].values()}
    assert kinds == {"engine", "golden"}
    sizes = parse(made.manifest_bytes).sizes()
    assert document_of(made)["requires"]["disk_bytes"] == sum(sizes.values())
    again = with_weights(bundle, other.weights, other.values, toys.golden(1), samples=samples(1))
    assert parse(again.manifest_bytes).samples is not None


def test_engines_of_a_board_name_its_kind_and_what_a_refit_keeps() -> None:
    plain = toys.artefacts()
    about = EngineEntry("plan", "10.3.0.30", True, False, False, "identical", None, (), ())
    from edgekit.bundles.manifest import make_requires

    board = {"backend": "tensorrt", "module": "Orin", "l4t": "36.4.3", "tensorrt": "10.3.0.30"}
    built = dataclasses.replace(
        plain,
        backend="tensorrt",
        fingerprint=board,
        entries=dict.fromkeys(plain.engines, about),
    )
    sizes = {digest: len(data) for digest, data in plain.engines.items()}
    engines = sum(sizes.values())
    found = make_requires(built, {**sizes, "golden": 40}, 100)
    assert found.boards == ({"module": "Orin", "l4t": "36.4.3", "tensorrt": "10.3.0.30"},)
    assert found.dla_cores == (0, 1)
    assert (found.runtime, found.portable, found.cudla) == (None, False, False)
    assert found.memory_bytes == engines + 100
    assert found.disk_bytes == (engines + 40 + 100) + (engines + 100)
    one = dataclasses.replace(about, kind="loadable", stripped=False, dla_core=0)
    loadable = dict.fromkeys(plain.engines, one)
    found = make_requires(dataclasses.replace(built, entries=loadable), sizes, 0)
    assert found.cudla is True
    assert found.disk_bytes == engines


@pytest.mark.parametrize(
    ("shared", "needs"), [(True, {"GPU": 2048, "DLA0": 1024}), (False, {"GPU": 3072, "DLA0": 1024})]
)
def test_what_contexts_need_counts_by_device(shared: bool, needs: dict[str, int]) -> None:
    about = EngineEntry("plan", "10.3.0.30", True, False, False, "identical", None, (), ())
    entries = {
        name: dataclasses.replace(about, device_bytes=size)
        for name, size in (("a", 1000), ("b", 2000), ("c", 900))
    }
    entries["d"] = dataclasses.replace(about, kind="loadable", dla_core=1)
    runs = [("a", "GPU"), ("b", "GPU"), ("a", "GPU"), ("c", "DLA0"), ("d", "DLA1"), ("e", "CPU")]
    assert context_bytes(runs, entries, shared=shared) == needs
    # the builder did not say it of one of them
    entries["b"] = about
    assert context_bytes(runs, entries, shared=shared) == {"DLA0": 1024}


def test_settings_of_the_gpus_memory_are_in_the_manifest_where_they_are_not_the_defaults() -> None:
    plain = pack(artefacts=toys.artefacts(), **PARTS)
    assert "memory" not in document_of(plain)
    assert parse(plain.manifest_bytes).memory == MemorySettings()
    settings = MemorySettings(shared=False, persistent_cache=0.25, weight_budget=-1)
    bundle = pack(artefacts=toys.artefacts(), memory=settings, **PARTS)
    assert document_of(bundle)["memory"] == {
        "shared": False,
        "persistent_cache": 0.25,
        "weight_budget": -1,
    }
    assert parse(bundle.manifest_bytes).memory == settings
    assert (
        with_weights(
            bundle, toys.artefacts(1).weights, toys.artefacts(1).values, toys.golden(1)
        ).manifest.memory
        == settings
    )


def test_a_sample_of_another_shape_is_refused() -> None:
    wrong = dataclasses.replace(
        samples(),
        cases=[({"x": np.zeros((1, 3, 8, 8), np.float32)}, {"y": np.zeros((1, 9), np.float32)})],
    )
    with pytest.raises(BundleError) as caught:
        pack(artefacts=toys.artefacts(), samples=wrong, **PARTS)
    assert "samples.cases[0].outputs.y" in caught.value.message


GOOD = json.loads(pack(artefacts=toys.artefacts(), samples=samples(), **PARTS).manifest_bytes)
ENGINE = GOOD["lanes"][0]["segments"][0]["engine"]
FAULTS: list[tuple[tuple[str | int, ...], object]] = [
    (("requires", "backend"), "tensorrt"),
    (("requires", "surprise"), 1),
    (("requires", "runtime"), {"name": "onnxruntime", "from": "new", "below": ""}),
    (("requires", "boards"), [{"module": "x"}]),
    (("requires", "dla_cores"), [5]),
    (("requires", "dla_cores"), [-1]),
    (("requires", "cudla"), 1),
    (("requires", "disk_bytes"), -1),
    (("requires", "memory_bytes"), 1 << 60),
    (("memory",), {"persistent_cache": 1.5}),
    (("memory",), {"shared": 1}),
    (("memory",), {"weight_budget": -2}),
    (("samples", "metric"), "accuracy"),
    (("samples", "synthetic"), "no"),
    (("samples", "min"), "0.9"),
    (("samples", "cases"), []),
    (("samples", "cases", 0, "inputs", "x"), ENGINE),
    (("samples", "cases", 0, "inputs"), {}),
    (("samples", "cases", 0, "outputs", "y"), "../../etc"),
]


@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_every_field_is_checked(fault: int) -> None:
    place, value = FAULTS[fault]
    document = json.loads(json.dumps(GOOD))
    at = document
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(DeviceError) as caught:
        parse(json.dumps(document).encode())
    assert caught.value.code == "manifest.invalid"
    assert caught.value.where.startswith(str(place[0]))


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ("manifest", {"rebuild": {"request": "ab" * 32, "blobs": [], "relative": 0.02}}),
        ("requires", {"on_change": "refuse"}),
    ],
)
def test_a_bundle_of_an_older_form_is_refused_with_the_command_that_mends_it(
    part: str, more: dict[str, Any]
) -> None:
    document = json.loads(json.dumps(GOOD))
    (document if part == "manifest" else document[part]).update(more)
    with pytest.raises(DeviceError) as caught:
        parse(json.dumps(document).encode())
    assert caught.value.code == "manifest.invalid"
    assert repr(next(iter(more))) in caught.value.message
    assert "edgekit deploy CONFIG" in caught.value.hint
