"""What ``edgekit plan`` promises of several networks, read off the document that it prints."""

import json

import pytest

from edgekit.cli.main import main
from tests.pipeline.nets import small_net
from tests.schedule.test_several import check

HEAD = "version: 1\nname: several\ntarget: jetson-agx-orin-64gb\n"


@pytest.fixture
def planned(tmp_path, capsys):
    small_net(tmp_path / "small.onnx")

    def run(*rows, placement="{dla_cores: [0, 1]}", status=0):
        networks = "".join(f"    - {{onnx: small.onnx, {row}}}\n" for row in rows)
        config = tmp_path / "several.yaml"
        config.write_text(f"{HEAD}placement: {placement}\nmodel:\n  networks:\n{networks}")
        with pytest.raises(SystemExit) as ended:
            main(["plan", str(config), "--json", "-q"])
        assert (ended.value.code or 0) == status
        return json.loads(capsys.readouterr().out)

    return run


def test_every_frame_of_a_cycle_is_in_time_and_every_device_runs_one_thing(planned):
    rows = ("name: a, rate_hz: 4000", "name: b, rate_hz: 1000, deadline_ms: 0.8, precision: fp16")
    document = planned(*rows)
    check(document)
    assert document["cycle_us"] == pytest.approx(1000)
    # without a deadline, a frame is due when the next one arrives
    assert [(one["frames"], one["deadline_us"]) for one in document["networks"]] == [
        (4, pytest.approx(250)),
        (1, pytest.approx(800)),
    ]
    assert planned(*rows) == document


def test_loadables_of_all_networks_share_the_slots_of_a_core(planned):
    rows = [
        f"name: {name}, rate_hz: 1000, pin: [{{layers: 'conv*', device: DLA}}]" for name in "ab"
    ]
    document = planned(*rows, placement="{dla_cores: [0], max_loadables: 2}")
    check(document)
    assert document["loadables"]["cores"] == {"DLA0": 2}
    refused = planned(*rows, placement="{dla_cores: [0], max_loadables: 1}", status=1)
    assert (refused["error"]["code"], refused["binding"]["kind"]) == ("plan.infeasible", "slots")


@pytest.mark.parametrize(
    ("rows", "kind", "named"),
    [
        (("name: a, rate_hz: 100", "name: b, rate_hz: 100, deadline_ms: 0.001"), "deadline", "b"),
        ([f"name: {n}, rate_hz: 20000, deadline_ms: 5" for n in "abc"], "busy", "GPU"),
    ],
)
def test_what_stands_in_the_way_is_named(planned, rows, kind, named):
    binding = planned(*rows, placement="{dla_cores: []}", status=1)["binding"]
    assert binding["kind"] == kind
    assert binding["network"] == named if kind == "deadline" else binding["utilisation"][named] > 1


def test_rates_that_meet_again_too_rarely_are_no_usage(planned):
    refused = planned("name: a, rate_hz: 30", "name: b, rate_hz: 29.97", status=2)
    assert refused["error"]["code"] == "plan.hyperperiod"
