"""What a command says of a file that does not exist: what it wants, and how to get one."""

import pytest

from edgekit.cli import main


def refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(
            (name, "a YAML configuration, or")
            for name in ("run", "build", "bundle", "deploy", "infer", "tune")
        ),
        ("report", "a YAML configuration or a report.json"),
        ("trace", "a YAML configuration or a bench.json"),
    ],
)
def test_a_command_names_the_kind_of_file_that_it_reads(name, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = refused([name, "nofile"], capsys)
    assert "nofile: the file does not exist" in error
    assert f"give the path of {kind}" in error
    assert "edgekit init MODEL.onnx" in error
    assert "edgekit init builtin:light_squeezenet" in refused([name, "light_squeezenet"], capsys)


def test_a_configuration_for_a_folder_that_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = refused(["init", "builtin:light_squeezenet", "-o", "none/net.yaml"], capsys)
    assert "none/net.yaml: its folder does not exist" in error
    assert "mkdir -p none" in error
