"""Bundles for several shapes: what runs a frame, when it is opened, and what is refused."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit_device
from edgekit.bundles.files import write
from edgekit.bundles.manifest import Bundle
from edgekit.bundles.sign import sign
from edgekit.dla.rules import loadables_per_core
from edgekit_device.errors import DeviceError
from edgekit_device.runtime import reference
from edgekit_device.runtime.model import Model
from edgekit_device.runtime.variants import MOST_LOADABLES, Router
from tests.edgekit_device.device_board import BoardFolder, Refused, bench_option
from tests.edgekit_device.runtime import variant_toys as toys
from tests.edgekit_device.runtime.variant_toys import expected, frame


def loaded(folder: Path, bundle: Bundle) -> Model:
    path = write(bundle, folder / "sizes.ekb", stripped=False)
    return edgekit_device.load(path, trust_unsigned=True)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Digests of the engines that are opened, in order."""
    found: list[str] = []
    real = reference._open

    def watched(checked: Any, segment: Any, *more: Any) -> Any:
        found.append(segment.engine)
        return real(checked, segment, *more)

    monkeypatch.setattr(reference, "_open", watched)
    return found


SHAPES = [(1, 3, 8, 8), (1, 3, 8, 12), (1, 3, 4, 4), (1, 3, 10, 9), (1, 3, 20, 32)]


def test_a_stream_mixes_shapes_and_keeps_their_order(tmp_path: Path) -> None:
    model = loaded(tmp_path, toys.buckets())
    frames = [frame(*shape, seed=n) for n, shape in enumerate(SHAPES * 3)]
    results = list(model.stream({"x": x} for x in frames))
    for x, found in zip(frames, results, strict=True):
        np.testing.assert_allclose(found["y"], expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "nearest"),
    [
        ((1, 3, 3, 4), "[1, 3, 4, 4]"),
        ((1, 3, 16, 17), "[1, 3, 16, 16]"),
        ((1, 3, 33, 40), "[1, 3, 32, 32]"),
    ],
)
def test_another_shape_is_refused_with_the_nearest(
    tmp_path: Path, shape: tuple[int, ...], nearest: str
) -> None:
    model = loaded(tmp_path, toys.buckets())
    for call in (model, lambda given: list(model.stream([given]))):
        with pytest.raises(DeviceError) as caught:
            call({"x": frame(*shape)})  # type: ignore[operator]
        assert (caught.value.code, caught.value.where) == ("input.shape", "x")
        assert f"the nearest is x {nearest}" in caught.value.hint
        assert "x [1, 3, 8, 12]" in caught.value.hint
        assert "x [1, 3, 4, 4] to [1, 3, 16, 16]" in caught.value.hint


@pytest.mark.parametrize("value", [np.zeros((1, 3, 8)), np.zeros(())])
def test_an_input_of_another_rank_or_type_is_refused(tmp_path: Path, value: np.ndarray) -> None:
    model = loaded(tmp_path, toys.buckets())
    with pytest.raises(DeviceError) as caught:
        model(value.astype(np.float32))
    assert caught.value.code == "input.shape"
    with pytest.raises(DeviceError) as caught:
        model(value)
    assert caught.value.code == "input.dtype"


def test_a_demand_variant_is_opened_by_its_first_frame(tmp_path: Path, opened: list[str]) -> None:
    model = loaded(tmp_path, toys.buckets())
    assert len(opened) == 2
    x = frame(1, 3, 8, 12)
    begin = threading.Barrier(4)
    results: list[np.ndarray] = []

    def call() -> None:
        begin.wait(120)
        results.append(model({"x": x})["y"])

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 3
    assert len(results) == 4
    np.testing.assert_allclose(results[0], expected(x), rtol=1e-5, atol=1e-6)


def test_a_demand_variant_that_cannot_be_opened_fails_its_frame_alone(tmp_path: Path) -> None:
    bundle = toys.buckets()
    path = write(bundle, tmp_path / "sizes", stripped=False)
    model = edgekit_device.load(path, trust_unsigned=True)
    (path / "blobs" / bundle.manifest.variants[0].lanes[0].segments[0].engine).unlink()
    for _ in range(2):
        with pytest.raises(DeviceError) as caught:
            model({"x": frame(1, 3, 8, 12)})
        assert caught.value.code == "blob.missing"
    assert model({"x": frame(1, 3, 8, 8)})["y"].shape == (1, 4, 8, 8)


def test_more_loadables_than_a_core_holds_are_refused_with_their_number(tmp_path: Path) -> None:
    assert len(loaded(tmp_path, toys.many(16, load="start")).variants) == 16
    for bundle, count in (
        (toys.many(17, load="start"), 17),
        (toys.many(3, load="demand", loadables=9), 18),
    ):
        with pytest.raises(DeviceError, match=f"have {count} loadables on DLA0") as caught:
            loaded(tmp_path, bundle)
        assert caught.value.code == "engine.loadables"


def test_demand_variants_take_turns_on_a_full_core(tmp_path: Path, opened: list[str]) -> None:
    model = loaded(tmp_path, toys.many(4, load="demand", loadables=6))
    assert len(opened) == 1
    wide = [frame(1, 3, 8, 8 + n) for n in range(4)]
    for x, engines in ((wide[1], 2), (wide[2], 3), (wide[2], 3), (wide[1], 4), (wide[0], 4)):
        np.testing.assert_allclose(model({"x": x})["y"], expected(x), rtol=1e-5, atol=1e-6)
        assert len(opened) == engines
    assert len(model.engines) == 2
    frames = [wide[n] for n in (0, 1, 2, 3, 3, 0, 1)]
    for x, found in zip(frames, model.stream({"x": x} for x in frames), strict=True):
        np.testing.assert_allclose(found["y"], expected(x), rtol=1e-5, atol=1e-6)
    with (
        model.variant(1),
        pytest.raises(DeviceError, match="those that are open are in use") as caught,
    ):
        model({"x": wide[2]})
    assert caught.value.code == "engine.loadables"
    assert model({"x": wide[2]})["y"].shape == (1, 4, 8, 10)


def test_smaller_batches_are_padded_and_cropped(tmp_path: Path) -> None:
    model = loaded(tmp_path, toys.batches())
    for batch in (1, 2, 3, 4):
        x = frame(batch, 3, 8, 8, seed=batch)
        for found in (model({"x": x}), *model.stream([x])):
            assert found["y"].flags.c_contiguous
            np.testing.assert_allclose(found["y"], expected(x), rtol=1e-5, atol=1e-6)
    router = Router(model.name, model.variants, toys.batches().manifest.padding)
    routes = [router.route({"x": (batch, 3, 8, 8)}) for batch in (1, 2, 3, 4)]
    assert [route.variant for route in routes] == [1, 1, 0, 0]
    assert [bool(route.padded) for route in routes] == [True, False, True, False]
    for shape in ((5, 3, 8, 8), (1, 3, 7, 8)):
        with pytest.raises(DeviceError) as caught:
            model({"x": frame(*shape)})
        assert caught.value.code == "input.shape"


@pytest.fixture
def sizes(signing_key: Path) -> Bundle:
    bundle = toys.buckets()
    return bundle.signed(sign(bundle.manifest_bytes, signing_key))


def test_a_board_deploys_tests_runs_and_measures_every_shape(
    board: BoardFolder, sizes: Bundle
) -> None:
    release = board.install(sizes)
    answer = board.command("selftest", "--app", "sizes")
    assert answer["ok"]
    assert [tuple(case["shapes"]["x"]) for case in answer["cases"]] == [
        (1, 3, 8, 8),
        (1, 3, 8, 12),
        (1, 3, 10, 10),
        (1, 3, 4, 4),
        (1, 3, 16, 16),
        (1, 3, 17, 17),
        (1, 3, 32, 32),
    ]
    for shape in SHAPES:
        x = frame(*shape)
        found = board.infer("sizes", x=x)["y"]
        np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=1e-6)

    def measured(**settings: Any) -> dict[str, Any]:
        option = bench_option(warmup_ms=0, duration_s=0, iterations=2, **settings)
        found: dict[str, Any] = board.command(
            "bench", "--app", "sizes", "--release", release, option
        )["settings"]
        return found

    assert measured()["shapes"] == {"x": [1, 3, 8, 8]}
    for shape in SHAPES:
        found = measured(shapes={"x": shape}, profile=True)
        assert found["shapes"] == {"x": list(shape)}
    with pytest.raises(Refused) as caught:
        measured(shapes={"x": (1, 3, 16, 17)})
    assert caught.value.code == "bench.shape"
    assert "the nearest is x [1, 3, 16, 16]" in caught.value.hint


def test_a_server_answers_every_shape(board: BoardFolder, sizes: Bundle) -> None:
    board.install(sizes)
    board.command("serve", "--app", "sizes", "--background", "--threads", "1")
    try:
        with edgekit_device.connect(board.root / "apps" / "sizes") as client:
            assert [one.inputs[0].shape for one in client.variants] == [
                (1, 3, 8, 8),
                (1, 3, 8, 12),
                (1, 3, 10, 10),
            ]
            assert client.variants[2].profiles[1]["x"].max == (1, 3, 32, 32)
            # outputs grow and shrink from call to call
            for shape in (*SHAPES, *reversed(SHAPES)):
                x = frame(*shape)
                found = client(x)["y"]
                np.testing.assert_allclose(found, expected(x), rtol=1e-5, atol=1e-6)
            with pytest.raises(DeviceError, match="no variant") as caught:
                client(frame(1, 3, 16, 17))
            assert caught.value.code == "input.shape"
    finally:
        board.command("serve-stop", "--app", "sizes")


def test_a_wrong_golden_output_of_one_shape_fails_the_self_test(
    board: BoardFolder, signing_key: Path
) -> None:
    made = toys.VariantToys()
    first, second = made.variant((1, 3, 8, 8)), made.variant((1, 3, 8, 9))
    wrong = made.add(bytes(4 * 4 * 8 * 9), "golden")
    (case,) = second.golden
    case = replace(case, outputs={"y": replace(case.outputs["y"], blob=wrong)})
    bundle = made.bundle(first, replace(second, golden=(case,)))
    release = board.install(bundle.signed(sign(bundle.manifest_bytes, signing_key)))
    with pytest.raises(Refused, match=r"for x \[1, 3, 8, 9\] is off by"):
        board.command("selftest", "--app", "sizes", "--release", release)


def test_the_board_knows_how_many_loadables_a_core_holds_as_the_data_do() -> None:
    assert loadables_per_core() == MOST_LOADABLES
