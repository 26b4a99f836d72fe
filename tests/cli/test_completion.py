"""`edgekit completion`, as a shell uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.cli import main
from edgekit.cli.main import COMMANDS


def offered(words: str, place: int, monkeypatch: pytest.MonkeyPatch, capsys) -> list[str]:
    monkeypatch.setenv("_EDGEKIT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(place))
    with pytest.raises(SystemExit) as end:
        main.main([])
    assert end.value.code == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "place", "among"),
    [
        ("edgekit ", 1, [f"plain,{name}" for name in COMMANDS]),
        ("edgekit check --target jetson-agx-orin", 3, ["plain,jetson-agx-orin-64gb"]),
        ("edgekit plan model.onnx -t jetson-x", 4, ["plain,jetson-xavier-nx"]),
        ("edgekit init model.onnx -t jetson-x", 4, ["plain,jetson-xavier-nx"]),
        ("edgekit check --target = jetson-x", 4, ["plain,jetson-xavier-nx"]),
        ("edgekit check --target =", 3, ["plain,jetson-xavier-nx"]),
        ("edgekit check 'a b.onnx' --precision f", 4, ["plain,fp16", "plain,fp32"]),
        ("edgekit explain reduce.f", 2, ["plain,reduce.function"]),
        ("edgekit explain hardsw", 2, ["plain,HardSwish"]),
        ("edgekit rewrite m.onnx --enable neg,global-av", 4, ["plain,neg,global-average-pool"]),
        ("edgekit rewrite m.onnx --allow-approx approx", 4, ["plain,approx-gelu-erf"]),
        ("edgekit check mod", 2, ["file,mod"]),
        ("edgekit jobs l", 2, ["file,l", "plain,list", "plain,log"]),
        ("edgekit completion b", 2, ["plain,bash"]),
        ("edgekit plan m.onnx --objective th", 4, ["plain,throughput"]),
        ("edgekit tune m.yaml --objective = gpu", 4, ["plain,gpu_time"]),
        ("edgekit compare 1 2 --metric latency.p", 5, ["plain,latency.p99"]),
        ("edgekit bench m.onnx --precision i", 4, ["plain,int8"]),
        ("edgekit plan buil", 2, ["plain,builtin:light_resnet50"]),
        ("edgekit check buil", 2, ["plain,builtin:light_resnet50"]),
        # for bash the colon is a word, and what stands before it is not replaced
        ("edgekit plan builtin : light_res", 4, ["plain,light_resnet50"]),
        ("edgekit plan builtin :", 3, ["plain,light_resnet50"]),
        ("edgekit init builtin : light_sq", 4, ["plain,light_squeezenet"]),
        ("edgekit plan builtin : light_resnet50 -t jetson-x", 6, ["plain,jetson-xavier-nx"]),
        ("edgekit check --fail", 2, ["plain,--fail-under"]),
    ],
)
def test_what_is_offered(words, place, among, monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    found = offered(words, place, monkeypatch, capsys)
    assert set(among) <= set(found)
    # bash drops what came before a file
    assert not any(one.startswith("file") for one in found[1:])


def test_files_that_begin_as_a_built_in_network_does_are_offered(
    monkeypatch, capsys, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").mkdir()
    assert offered("edgekit plan buil", 2, monkeypatch, capsys) == ["file,buil"]


@pytest.mark.parametrize("words", ["edgekit nonsense x", "edgekit check --target '' x"])
def test_a_mistake_offers_nothing_and_says_nothing(words, monkeypatch, capsys) -> None:
    assert not [one for one in offered(words, 4, monkeypatch, capsys) if one.startswith("plain")]


@pytest.mark.parametrize(
    ("shell", "words"),
    [("bash", "complete -o nosort"), ("zsh", "#compdef edgekit"), ("fish", "complete --no-files")],
)
def test_the_script_is_printed(shell, words, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main.main(["completion", shell])
    assert not end.value.code
    assert words in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_with_it(tmp_path: Path) -> None:
    program = tmp_path / "edgekit"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgekit "$@"\n')
    program.chmod(0o755)
    script = (
        "source <(edgekit completion bash)\nCOMP_WORDS=(edgekit check -t jetson-xavier)\n"
        'COMP_CWORD=3\n_edgekit_completion edgekit\necho "${COMPREPLY[@]}"\ncomplete -p edgekit\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    first, second = done.stdout.splitlines()
    assert first == "jetson-xavier-nx"
    assert "-F _edgekit_completion edgekit" in second


def test_boards_are_completed_without_heavy_modules() -> None:
    code = (
        "import sys\nfrom edgekit.cli.main import main\ntry: main([])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'pydantic', 'paramiko', 'ortools', 'rich'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={
            **os.environ,
            "_EDGEKIT_COMPLETE": "bash_complete",
            "COMP_CWORD": "3",
            "COMP_WORDS": "edgekit check -t jet",
        },
    )
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert "plain,jetson-xavier-nx" in done.stdout
