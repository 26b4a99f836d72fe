"""``-o`` is the file that a command writes, ``--out`` the folder of a run."""

import click
import pytest

from edgekit.cli import main

TARGET = ["-t", "jetson-agx-orin-64gb"]
WRITERS = [
    ["init", "builtin:light_squeezenet", "-o"],
    ["rewrite", "builtin:light_squeezenet", *TARGET, "-o"],
    ["calibrate", "builtin:light_squeezenet", *TARGET, "-o"],
    ["calibrate", "merge", "a.cache", "-o"],
    ["trace", "bench.json", "-o"],
    ["bundle", "net.yaml", "-o"],
    ["infer", "net.yaml", "-o"],
    ["report", "report.json", "-o"],
    ["history", "export", "-o"],
]
RUNS = ["run", "bench", "deploy", "refit", "tune"]


def refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: " ".join(words[:2]))
def test_a_folder_for_a_file_is_wrong_usage(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    error = refused([*words, "there"], capsys)
    assert "there: it is a folder, not a file" in error
    assert "hint: give the name of a file" in error
    assert ("--out FOLDER" in error) == (words[0] in ("bundle", "infer", "report"))


def test_what_was_a_folder_before_is_not_taken_for_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    error = refused(["report", "report.json", "-o", "pages"], capsys)
    assert "its name has no ending" in error
    assert "--out FOLDER" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", RUNS)
def test_the_folder_as_it_was_named_before_works_and_warns(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    more = ["--weights", "other.onnx"] if name == "refit" else []
    with pytest.raises(SystemExit):
        main.main([name, "net.yaml", *more, "-o", "folder", "--json"])
    out, err = capsys.readouterr()
    assert "net.yaml" in out  # the configuration does not exist: the option was taken
    assert "-o folder is deprecated: use --out folder" in err


def test_no_help_names_o_for_a_folder():
    context = click.Context(main._root)
    for name in (*RUNS, "bundle", "infer", "report"):
        command = main._root.get_command(context, name)
        folder = next(item for item in command.params if item.name == "out")
        assert folder.opts == ["--out"]
        assert all(item.hidden for item in command.params if name in RUNS and "-o" in item.opts)
