"""Every option of the commands that measure can be given, and errors name it as it was typed."""

import click
import pytest

from edgekit.cli import main
from edgekit.cli.main import Commands
from edgekit.errors import EdgekitError


def value_of(option, file):
    """Returns a value that the option's own type and range allow."""
    kind = option.type
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.types._NumberRangeBase):
        return str(kind.min)
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        return "1"
    if isinstance(kind, click.Path):
        return str(file.parent if option.name in ("out", "former_out") else file)
    if option.name == "torch_inputs":
        return "x=1x3x8x8"
    if option.name == "shape":
        return "x:1x3"
    if option.name == "trust":
        return 64 * "a"
    return option.default if isinstance(option.default, str) else "latency"


@pytest.mark.parametrize("name", ["bench", "trace", "tune", "compare", "history", "report", "top"])
def test_each_option_alone_is_parsed(name, tmp_path, monkeypatch):
    file = tmp_path / "file.html"
    file.touch()
    (tmp_path / "x").touch()
    monkeypatch.chdir(tmp_path)
    command = Commands("edgekit").get_command(click.Context(main._root), name)
    places = ["x" for item in command.params if isinstance(item, click.Argument)]
    refused = {}
    for option in (item for item in command.params if isinstance(item, click.Option)):
        for flag in (*option.opts, *option.secondary_opts):
            given = [flag] if option.is_flag else [flag, value_of(option, file)]
            try:
                command.make_context(name, [*places, *given])
            except (click.ClickException, EdgekitError) as error:
                refused[flag] = str(error)
    assert refused == {}


def bench(monkeypatch, tmp_path, capsys, *options):
    monkeypatch.setenv("HOME", str(tmp_path))
    model = "builtin:light_resnet50"
    with pytest.raises(SystemExit) as caught:
        main.main(["bench", model, "-t", "jetson-agx-orin-64gb", *options])
    return caught.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--streams", "0"), "edgekit: --streams: "),
        (("--duration", "-1"), "edgekit: --duration: "),
        (("--shape", "x:0x0"), "--shape"),
        (("--precision", "int9"), "edgekit: --precision: "),
        (("--monitor", "50", "--no-monitor"), "--monitor and --no-monitor"),
    ],
)
def test_an_error_names_the_option_as_it_was_typed(monkeypatch, tmp_path, capsys, options, words):
    status, said = bench(monkeypatch, tmp_path, capsys, *options)
    assert status == 2
    assert said.startswith("edgekit: ")
    assert words in said
    assert "option bench." not in said


def test_no_monitor_is_none_for_the_configuration(monkeypatch):
    from edgekit.cli import measurements

    @click.command()
    @measurements.bench_options
    def command(bench):
        assert bench.monitor_ms == 0

    command.main(["--no-monitor"], standalone_mode=False)
