"""A release is examined: golden vectors, accuracy on shipped samples, latency."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundles.manifest import Bundle, BundleSamples, golden_inputs
from edgekit.bundles.pack import pack
from edgekit.bundles.sign import sign
from edgekit.errors import BundleError
from edgekit_device.deployment import health
from edgekit_device.deployment.health import examine
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.codec import write
from edgekit_device.release.changed import GoldenOutcome, read_health
from edgekit_device.release.policy import Policy
from edgekit_device.release.releases import check_release, switch
from edgekit_device.runtime.deviation import Deviation, worst_measures
from edgekit_device.runtime.golden import compare
from edgekit_device.runtime.model import open_model
from edgekit_device.store.root import Root
from tests.bundles import bundle_toys as toys
from tests.edgekit_device.deployment.health_board import put

POLICY = Policy(measure_s=0.0)


def samples(seed: int = 0, least: float | None = None, metric: str = "cosine") -> BundleSamples:
    """Two inputs with the outputs of the weights of ``seed``."""
    cases = []
    for number in (1, 2):
        inputs = golden_inputs(toys.network(), number, toys.RANGES)
        cases.append((inputs, toys.expected(seed, inputs)))
    return BundleSamples(metric, "two toys", False, least, cases)


def bundle_with(key: Path, *, seed: int = 0, **more: Any) -> Bundle:
    made = pack(
        name="toy",
        model=toys.toy_model(seed),
        network=toys.network(),
        plan=toys.plan(),
        artefacts=toys.artefacts(seed),
        golden=toys.golden(seed),
        mode="split",
        samples=samples(**more) if more else None,
    )
    return made.signed(sign(made.manifest_bytes, key))


Put = Callable[..., Path]


def test_figures_are_retained_and_say_on_which_clock(root: Root, signing_key: Path) -> None:
    folder = put(root, bundle_with(signing_key, seed=0, least=0.999))
    found = examine(root, root.app("toy"), folder, POLICY)
    assert found == read_health(folder)
    assert write(found) == json.loads((folder / "health.json").read_text())
    assert (found.clock, found.backend) == ("cpu-measured", "reference")
    assert found.golden == GoldenOutcome(2, True)
    assert found.accuracy is not None
    assert found.accuracy.value == pytest.approx(1.0)
    assert (found.accuracy.samples, found.accuracy.least) == (2, 0.999)
    latency = write(found.latency_ms)
    assert 0 < latency["p50"] <= latency["p99"]
    assert latency["frames"] >= 10


@pytest.mark.whole
@pytest.mark.parametrize(
    ("metric", "least"), [("cosine", 0.999), ("snr_db", 20.0), ("top1_agreement", 1.0)]
)
def test_another_networks_answers_are_distinguished_from_its_own(
    root: Root, signing_key: Path, metric: str, least: float
) -> None:
    # what FP32 makes of other weights: as if the engines had lost their accuracy
    folder = put(root, bundle_with(signing_key, seed=0, metric=metric, least=None))
    assert examine(root, root.app("toy"), folder, replace(POLICY, accuracy_min=least)).accuracy
    wrong = replace(samples(1, metric=metric), least=None)
    made = pack(
        name="toy",
        model=toys.toy_model(),
        network=toys.network(),
        plan=toys.plan(),
        artefacts=toys.artefacts(),
        golden=toys.golden(),
        mode="split",
        samples=wrong,
    )
    folder = put(root, made.signed(sign(made.manifest_bytes, signing_key)))
    with pytest.raises(DeviceError) as caught:
        examine(root, root.app("toy"), folder, replace(POLICY, accuracy_min=least))
    assert caught.value.code == "health.accuracy"
    assert "two toys" in caught.value.message
    assert read_health(folder) is None


def test_boxes_cannot_be_judged_without_a_head(signing_key: Path) -> None:
    with pytest.raises(BundleError) as caught:
        bundle_with(signing_key, seed=0, metric="boxes", least=None)
    assert "boxes needs a head" in caught.value.message


def labelled(key: Path, labels: list[list[int]], **changes: Any) -> Bundle:
    given = replace(samples(metric="top1_accuracy"), labels=labels, **changes)
    made = pack(
        name="toy",
        model=toys.toy_model(),
        network=toys.network(),
        plan=toys.plan(),
        artefacts=toys.artefacts(),
        golden=toys.golden(),
        mode="split",
        samples=given,
    )
    return made.signed(sign(made.manifest_bytes, key))


def test_labels_say_how_many_are_right(root: Root, signing_key: Path) -> None:
    right = [int(outputs["y"].argmax()) for _, outputs in samples().cases]
    for labels, share in (
        ([[right[0]], [right[1]]], 1.0),
        ([[right[0]], [(right[1] + 1) % 10]], 0.5),
    ):
        folder = put(root, labelled(signing_key, labels))
        found = examine(root, root.app("toy"), folder, replace(POLICY, accuracy_min=0.5)).accuracy
        assert found is not None
        assert (found.metric, found.value, found.top1_agreement) == (
            "top1_accuracy",
            share,
            1.0,
        )
    with pytest.raises(DeviceError) as caught:
        examine(root, root.app("toy"), folder, replace(POLICY, accuracy_min=0.75))
    assert caught.value.code == "health.accuracy"
    assert "top1_accuracy" in caught.value.message


@pytest.mark.parametrize(
    ("labels", "changes"),
    [
        ([[1], [10]], {}),
        ([[1], [-1]], {}),
        ([[1], [1, 2]], {}),
        ([[1], ["2"]], {}),
        ([[1], []], {}),
        ([[1], [2]], {"metric": "cosine"}),
    ],
)
def test_labels_that_are_none(
    signing_key: Path, labels: list[list[Any]], changes: dict[str, Any]
) -> None:
    # packing asks the board's own reader
    with pytest.raises(BundleError, match=r"samples\.cases\[") as caught:
        labelled(signing_key, labels, **changes)
    assert caught.value.code == "bundle.invalid"


def test_a_gate_without_samples_is_no_pass(root: Root, signing_key: Path) -> None:
    folder = put(root, bundle_with(signing_key))
    with pytest.raises(DeviceError) as caught:
        examine(root, root.app("toy"), folder, replace(POLICY, accuracy_min=0.5))
    assert caught.value.code == "health.accuracy"
    assert "samples" in caught.value.hint


def test_wrong_answers_fail_the_golden_vectors(root: Root, signing_key: Path) -> None:
    made = pack(
        name="toy",
        model=toys.toy_model(),
        network=toys.network(),
        plan=toys.plan(),
        artefacts=toys.artefacts(),
        golden=toys.golden(1),
        mode="split",
    )
    folder = put(root, made.signed(sign(made.manifest_bytes, signing_key)))
    with pytest.raises(DeviceError) as caught:
        examine(root, root.app("toy"), folder, POLICY)
    assert caught.value.code == "selftest.failed"


class Clock:
    """A processor's clock in which a release's frames last as long as its digest says."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.last: dict[str, Callable[[int], float]] = {}
        self.frames = 0
        self.ran: set[str] = set()
        patch.setattr(health.time, "perf_counter", lambda: self.now)
        from edgekit_device.runtime.model import Model

        run = Model.run_lane

        def timed(model: Any, *arguments: Any) -> dict[str, np.ndarray]:
            self.frames += 1
            self.ran.add(model.digest)
            self.now += self.last.get(model.digest, lambda n: 0.001)(self.frames)
            return run(model, *arguments)

        patch.setattr(Model, "run_lane", timed)


def test_a_budget_counts_what_half_of_the_frames_need(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_with(signing_key)
    folder = put(root, bundle)
    clock = Clock(monkeypatch)
    # every tenth frame waits for something else on the board
    clock.last[bundle.digest] = lambda n: 0.1 if n % 10 == 0 else 0.004
    found = examine(root, root.app("toy"), folder, Policy(latency_ms=5.0, measure_s=1.0))
    assert found.latency_ms.p50 == pytest.approx(4)
    assert found.latency_ms.p99 == pytest.approx(100)
    with pytest.raises(DeviceError) as caught:
        examine(root, root.app("toy"), folder, Policy(latency_ms=3.9, measure_s=1.0))
    assert caught.value.code == "health.latency"
    assert "cpu-measured" in caught.value.message


def test_one_slow_round_is_measured_again_before_it_counts(
    root: Root, signing_key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = bundle_with(signing_key)
    folder = put(root, bundle)
    clock = Clock(monkeypatch)
    requested = Policy(latency_ms=20.0, measure_s=0.0)
    slow_until = clock.frames + 15
    clock.last[bundle.digest] = lambda n: 0.030 if n < slow_until else 0.010
    assert examine(root, root.app("toy"), folder, requested).latency_ms.rounds == 2
    # the release that serves is no measure: neither loaded nor run
    other = bundle_with(signing_key, seed=1)
    switch(root.app("toy"), put(root, other).name)
    clock.ran.clear()
    examine(root, root.app("toy"), folder, requested)
    assert clock.ran == {bundle.digest}


def test_a_soak_keeps_the_figures_of_before(root: Root, signing_key: Path) -> None:
    folder = put(root, bundle_with(signing_key))
    before = examine(root, root.app("toy"), folder, Policy(measure_s=0.01)).latency_ms
    assert examine(root, root.app("toy"), folder, POLICY).latency_ms == before


def test_a_release_that_was_not_refitted_is_not_examined(root: Root, signing_key: Path) -> None:
    bundle = bundle_with(signing_key)
    folder = put(root, bundle)
    (folder / "refit.json").unlink()
    with pytest.raises(DeviceError) as caught:
        examine(root, root.app("toy"), folder, POLICY)
    assert caught.value.code == "release.not-ready"


def test_a_model_that_is_open_already_is_the_one_examined(root: Root, signing_key: Path) -> None:
    folder = put(root, bundle_with(signing_key))
    model = open_model(check_release(root, folder))
    runs = []
    run = model.run_lane
    model.run_lane = lambda *a, **k: runs.append(1) or run(*a, **k)  # type: ignore[method-assign]
    examine(root, root.app("toy"), folder, POLICY, model)
    assert runs


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        ([1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.002], True),
        ([1.0, 2.0, 3.1], False),
        ([1.0, np.nan, 3.0], False),
        ([1.0, np.inf, 3.0], False),
    ],
)
def test_a_golden_output_may_differ_by_the_tolerance_of_its_largest_value(
    found: list[float], ok: bool
) -> None:
    assert compare(np.float32(found), np.float32([1, 2, 3]), 1e-3).ok is ok


@pytest.mark.parametrize("fault", ["three times as large", "mixed with another signal"])
def test_a_small_channel_that_is_lost_next_to_a_large_one_fails(fault: str) -> None:
    """Within the tolerance of the largest value, and by cosine or by noise alone no signal."""
    small, other = (np.random.default_rng(n).choice([-1.0, 1.0], (64, 64)) for n in range(2))
    wanted = np.float32([[100 * small, small]])
    lost = 3 * small if fault == "three times as large" else small + 0.7 * other
    assert compare(wanted, wanted, 0.05).ok
    assert not compare(np.float32([[100 * small, lost]]), wanted, 0.05).ok


def test_an_answer_that_is_no_number_agrees_with_nothing() -> None:
    error = Deviation()
    error.add(np.float32([[1, 2, 3]]), np.float32([[1, 2, 3]]))
    error.add(
        np.float32([[1, 3, 2]]), np.float32([[1, np.nan, 2]])
    )  # argmax takes it for a largest
    found = worst_measures([error])
    assert (found.cosine, found.cosine_min) == (0.0, 0.0)
    assert error.top1_agreement() == 0.5
