"""Each network of several is planned with its rewrites or without, as a single plan is."""

import pytest

import edgekit
from edgekit.errors import GateError, UsageError
from edgekit.network.source import BUILTIN_NAMES

BOARD = "jetson-agx-orin-64gb"
# one that is planned better without its rewrites goes first
NAMES = ("light_resnet50", *(name for name in BUILTIN_NAMES if name != "light_resnet50"))


def several(folder, *rows, **options):
    path = folder / "several.yaml"
    networks = "".join(f"    - {row}\n" for row in rows)
    path.write_text(
        f"version: 1\nname: several\nmodel:\n  networks:\n{networks}target: {BOARD}\n",
        encoding="utf-8",
    )
    return edgekit.plan_networks(path, **options)


@pytest.mark.whole
@pytest.mark.parametrize("name", NAMES)
def test_every_network_alone_is_as_good_as_its_single_plan(name, tmp_path):
    single = edgekit.plan(f"builtin:{name}", target=BOARD, placement={"slack": 0})
    best = single.predicted.latency_us
    deadline_ms = best * 1.001 / 1e3
    row = f"{{name: one, builtin: {name}, rate_hz: 10, deadline_ms: {deadline_ms}}}"
    (own,) = several(tmp_path, row).networks
    assert own.latency_us.lower <= best * (1 + 1e-4)
    assert own.latency_us.lower >= single.bound * (1 - 1e-4)


def test_a_deadline_that_only_the_plan_without_rewrites_keeps(tmp_path):
    rows = [
        "{name: main, builtin: light_resnet50, rate_hz: 10, deadline_ms: 0.93}",
        "{name: small, builtin: light_squeezenet, rate_hz: 10}",
    ]
    plans = several(tmp_path, *rows)
    assert plans.networks[0].latency_us.upper <= 930
    (note,) = (note for note in plans.notes if "rewrites not used" in note)
    assert note.startswith("main: ")
    # the timeline names the layers of the network that was planned
    known = {layer.name for layer in plans.networks[0].plan.layers}
    used = {slot.first for slot in plans.timeline if slot.network == "main"}
    assert used <= known
    with pytest.raises(GateError, match=r"main needs .* even when it has the whole board"):
        several(tmp_path, *rows, rewrite={"always": True})


def test_rates_that_repeat_too_rarely_are_refused_before_a_network_is_loaded(tmp_path):
    rows = [
        "{name: a, onnx: missing.onnx, rate_hz: 30}",
        "{name: b, onnx: missing.onnx, rate_hz: 29.97}",
    ]
    with pytest.raises(UsageError, match="repeat only after") as caught:
        several(tmp_path, *rows)
    assert caught.value.code == "plan.hyperperiod"
    assert caught.value.where
    assert caught.value.hint
