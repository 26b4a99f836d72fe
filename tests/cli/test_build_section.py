"""Keys of `build` where no board is known: the commands refuse or note what engines cannot have."""

from __future__ import annotations

import json

import pytest

from edgekit.cli import main
from tests.pipeline import nets

STREAMED = "{weight_streaming: true, typing: strong}"


def answer(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def written(folder, build, release="10.3", **options):
    extra = f'tensorrt: "{release}"\nbuild: {build}\n'
    return nets.small_config(folder, extra=extra, **options)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", ["plan", "build", "bundle", "run"])
def test_each_command_refuses_what_the_board_cannot_have(command, tmp_path, capsys):
    path = written(tmp_path, "{fp8: true}", precision="fp16")
    code, _, err = answer(capsys, command, str(path))
    assert code == 2
    assert f"{path}:10:9: BuilderFlag.FP8 (build.fp8)" in err
    assert "it needs 8.9" in err


@pytest.mark.parametrize(
    ("build", "release", "says"),
    [
        ("{hardware_compatible: true}", "10.3", "HW_COMPAT (build.hardware_compatible, line 10)"),
        ("{typing: strong, strip: true}", "8.6", "cannot build strongly typed networks"),
        ("{mode: standalone, strip: true}", "10.3", "STRIP_PLAN (build.strip, line 10)"),
        (STREAMED, "10.3", "DLA_HYBRID (build.mode) and WEIGHT_STREAMING"),  # of the plan
    ],
)
def test_a_plan_is_refused_as_with_a_board(build, release, says, tmp_path, capsys):
    path = written(tmp_path, build, release, precision="fp16")
    code, _, err = answer(capsys, "plan", str(path))
    assert code == 2
    assert f"{path}:10:" in err
    assert says in err
    named = written(
        tmp_path / "named", f"{build[:-1]}, backend: tensorrt}}", release, precision="fp16"
    )
    code, _, err = answer(capsys, "build", str(named))
    assert code == 2
    assert says in err


def test_what_streams_without_a_dla_is_planned(tmp_path, capsys):
    path = written(tmp_path, STREAMED, precision="fp16", objective="latency, dla_cores: []")
    assert answer(capsys, "plan", str(path))[0] == 0


@pytest.mark.parametrize("command", ["plan", "build"])
def test_what_is_dropped_is_noted(command, tmp_path, capsys):
    path = written(tmp_path, "{l2_limit_for_tiling_kib: 64}", "10.16", precision="fp16")
    code, out, _ = answer(capsys, command, str(path), "--json")
    assert code == 0
    notes = [note for note in json.loads(out)["notes"] if "build." in note]
    assert [note.split(":")[0] for note in notes] == ["build.l2_limit_for_tiling_kib is not used"]


def test_defaults_that_are_written_are_no_request(tmp_path, capsys):
    path = written(tmp_path, "{strip: auto, backend: reference}", "8.5", precision="fp16")
    code, out, _ = answer(capsys, "plan", str(path), "--json")
    assert code == 0
    assert not [note for note in json.loads(out)["notes"] if note.startswith("build.")]


def test_a_refit_of_several_profiles_is_refused_before_a_board_is_missed(tmp_path, capsys):
    text = nets.OPEN_CONFIG.format(precision="fp16", loadables=4, model="")
    small, large = (
        f"{{min: [1, 3, {low}, {low}], max: [1, 3, {high}, {high}]}}"
        for low, high in ((16, 32), (32, 64))
    )
    text = text.replace("{x: [1, 3, 16..64, 16..64]}", f"{{x: [{small}, {large}]}}")
    path = tmp_path / "open.yaml"
    path.write_text(text + "build: {refit: any, backend: tensorrt}\n")
    nets.open_net(tmp_path / "open.onnx")
    for command in ("plan", "build"):
        code, _, err = answer(capsys, command, str(path))
        assert code == 2
        assert f"{path}:12:9: REFIT allows 1 optimisation profile, but there are 2" in err


def test_several_networks_are_refused_with_the_line(tmp_path, capsys):
    nets.small_net(tmp_path / "small.onnx")
    path = tmp_path / "two.yaml"
    path.write_text(
        "version: 1\nname: two\ntarget: jetson-agx-orin-64gb\nprecision: fp16\nmodel: {networks: ["
        "{name: a, onnx: small.onnx}, {name: b, onnx: small.onnx}]}\nbuild: {fp8: true}\n"
    )
    code, _, err = answer(capsys, "plan", str(path))
    assert code == 2
    assert f"{path}:6:9: BuilderFlag.FP8 (build.fp8)" in err
