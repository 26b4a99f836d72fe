"""What `edgekit build` and `run` tell people of accuracy, precisions and files."""

import json

import pytest

import edgekit
from edgekit.cli import main, steps
from edgekit.errors import DataError, UsageError
from edgekit.tensorrt.built import BoardBuild, BoardEngine
from edgekit.tensorrt.comparison import BuiltComparison
from edgekit_device.build.request import TimingCacheUse
from tests.pipeline.nets import small_config
from tests.reports.handmade_run import BUILT


def output_of(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "-q"])
    captured = capsys.readouterr()
    assert caught.value.code == 0, captured.err
    return captured.out


def test_a_build_reports_its_data_and_every_note(tmp_path, monkeypatch, capsys):
    config = small_config(tmp_path)
    config.write_text(
        config.read_text().replace(
            "{method: entropy, count: 3}", "{count: 3, fp16_layers: [conv1]}"
        )
    )
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    document = json.loads(output_of(capsys, "build", str(config), "--json"))
    text = output_of(capsys, "build", str(config))
    assert f"on {document['accuracy']['data']}" in text
    count = len(document["segments"])
    assert text.startswith("1 segment," if count == 1 else f"{count} segments,")
    assert any("conv1" in note for note in document["notes"])
    for note in document["notes"]:
        assert f"note: {note}".lower() in text.lower()
    assert edgekit.read_document(document).to_json() == document
    document["boards"] = [BUILT]
    assert edgekit.read_document(document).boards[0].plan.differences
    document["boards"] = [{**BUILT, "plan": "XPU"}]
    with pytest.raises(DataError, match=r"boards\[0\]\.plan: .*expected an object"):
        edgekit.read_document(document)


@pytest.mark.whole
def test_a_run_names_the_model_that_tensorrt_builds_from(tmp_path, monkeypatch, capsys):
    config = small_config(tmp_path)
    config.write_text(f'{config.read_text()}tensorrt: "11.4.1"\n')
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "kept"))
    out = tmp_path / "out"
    document = json.loads(output_of(capsys, "run", str(config), "--out", str(out), "--json"))
    assert document["files"]["qdq"] == str(out / "qdq.onnx")
    assert all(path.startswith(str(out)) for path in document["files"].values())
    assert str(out / "qdq.onnx") in output_of(capsys, "run", str(config), "--out", str(out))


@pytest.mark.parametrize(("full", "says"), [(None, "full size unknown"), (2000, "2,000 with")])
def test_a_stripped_engine_whose_full_size_nobody_knows_is_reported_all_the_same(
    capsys, full, says
):
    engine = BoardEngine(
        "net", 1000, full, True, False, False, "none", None, 0, (), 2.0, TimingCacheUse()
    )
    same = BuiltComparison(engines=(), differences=(), same=True)
    steps._show_build(BoardBuild("lab", "", {}, "10.3.0", (engine,), same, ()))
    assert says in capsys.readouterr().out


def test_a_build_shows_what_tensorrt_held_of_settings(capsys):
    engine = BoardEngine(
        "net",
        1000,
        None,
        False,
        False,
        False,
        "none",
        None,
        0,
        (),
        2.0,
        TimingCacheUse(),
        {"sparsity": "on", "max_aux_streams": "2"},
    )
    same = BuiltComparison(engines=(), differences=(), same=True)
    steps._show_build(BoardBuild("lab", "", {}, "10.3.0", (engine,), same, ()))
    assert "net: 1,000 bytes, 2 s, sparsity: on, max_aux_streams: 2" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["build", "run", "deploy"])
def test_what_builds_can_be_strict(tmp_path, monkeypatch, name):
    seen = []

    def opened(config, options, **settings):
        seen.append(options["build"])
        raise UsageError("far enough")

    monkeypatch.setattr("edgekit.api.open_pipeline", opened)
    for options in (["--strict"], []):
        with pytest.raises(UsageError, match="far enough"):
            main.app([name, str(small_config(tmp_path)), *options])
    assert seen == [{"strict": True}, {"strict": None}]


def test_a_bundle_that_is_there_cannot_be_built_strictly(tmp_path):
    with pytest.raises(UsageError, match="builds nothing"):
        main.app(["deploy", str(small_config(tmp_path)), "--strict", "--bundle", "a.ekb"])
