"""edgekit plan and report of a configuration with several networks."""

import json

import pytest

from edgekit.cli.main import main
from tests.pipeline.nets import small_net

TEXT = """\
version: 1
name: two
model:
  networks:
    - {{name: a, onnx: small.onnx, rate_hz: {rate}}}
    - {{name: b, onnx: small.onnx, rate_hz: 1000, precision: fp16}}
target: jetson-agx-orin-64gb
placement: {{dla_cores: [0, 1]}}
"""


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code or 0


@pytest.fixture
def config(tmp_path):
    small_net(tmp_path / "small.onnx")
    path = tmp_path / "two.yaml"
    path.write_text(TEXT.format(rate=2000))
    return path


def test_plan_prints_one_document_and_writes_the_page(config, capsys, tmp_path):
    page = tmp_path / "two.html"
    assert run("plan", config, "--json", "-q") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "edgekit.plans/1"
    assert [one["plan"]["precision"] for one in document["networks"]] == ["int8", "fp16"]
    assert run("plan", config, "-q", "--report", page) == 0
    said = capsys.readouterr().out
    assert "meet their deadlines" in " ".join(said.split())
    assert 'class="gantt"' in page.read_text(encoding="utf-8")


def test_other_commands_name_what_takes_several_networks(config, capsys):
    for command in (["check", str(config)], ["plan", str(config), "--why", "conv1"]):
        assert run(*command) == 2
        assert "several" in capsys.readouterr().err


def test_rates_that_cannot_be_met_are_a_no(config, capsys):
    config.write_text(TEXT.format(rate=50_000))
    assert run("plan", config, "--json", "-q") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "plan.infeasible"
    assert document["binding"]["kind"] == "deadline"
