"""What a plan's summary says of figures that lie within the prediction error, or are idle power."""

from __future__ import annotations

import json

import pytest

from edgekit.cli import main
from edgekit.reports import text

BOARD = ("-t", "jetson-agx-orin-64gb", "-q")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(tmp_path_factory.mktemp("kept")))
        yield


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]):
    def output_of(*options: str) -> tuple[str, dict]:
        found = []
        for form in ((), ("--json",)):
            with pytest.raises(SystemExit) as caught:
                main.main(["plan", "builtin:light_squeezenet", *BOARD, *options, *form])
            assert caught.value.code == 0
            found.append(capsys.readouterr().out)
        return " ".join(found[0].split()), json.loads(found[1])

    return output_of


@pytest.mark.parametrize("objective", ["latency", "gpu_time", "energy"])
def test_the_gpu_alone_is_in_doubt_where_its_latency_is_within_the_band(plan, objective):
    said, document = plan("--objective", objective, "--bound", "latency_us=400")
    low, high = document["bands"]["latency_us"]
    alone = document["baselines"]["gpu_only"]["latency_us"]
    on_dla = any(layer["device"] != "GPU" for layer in document["layers"])
    doubted = on_dla and low <= alone <= high
    assert bool(document["doubts"]) == doubted
    assert ("within the prediction error of this plan: measure both" in said) == doubted
    latency = text.microseconds(document["predicted"]["latency_us"])
    band = f"(80 % band: {text.microseconds(low)} to {text.microseconds(high)})"
    assert f"latency {latency} {band}" in said
    if objective == "gpu_time":
        assert doubted
        sure, _, unsure = said.partition("Compared with the GPU alone:")[2].partition("Within")
        assert "less GPU time" in sure
        assert "latency" not in sure
        assert "less latency" in unsure


def test_the_band_of_an_energy_at_a_rate_is_of_the_share_above_idle(plan):
    said, document = plan("--objective", "energy", "--rate-hz", "10", "--power-mode", "50W")
    energy, idle = document["predicted"]["energy_uj"], document["energy"]["idle_uj"]
    low, high = (text.energy(end - idle) for end in document["bands"]["energy_uj"])
    above = f"80 % band of the {text.energy(energy - idle)} above idle: {low} to {high}"
    assert f"energy at 10/s {text.energy(energy)} ({above})" in said
    alone = document["baselines"]["gpu_only"]["energy_uj"]
    assert alone != energy
    assert text.energy(alone) == text.energy(energy)
    row = said.partition(" GPU alone ")[2].partition("GPU alone after")[0]
    assert row.split("µs")[-1].strip() == "the same"
