"""`edgekit explain-log`: what logs as people paste them mean."""

from __future__ import annotations

import contextlib
import html
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.cli import main
from edgekit.dla.explanation import explained as explained_rule
from edgekit.dla.rules import load_rules
from edgekit.errors import UsageError
from edgekit.knowledge import data_folder
from edgekit.pipeline.log_explanation import explain_log
from tests.pipeline.nets import small_net
from tests.tries import tries

LOGS = Path(__file__).parents[1] / "data" / "build_logs"
ORIN = "jetson-agx-orin-64gb"


def explained(text: str | bytes, folder: Path, **options: Any) -> dict[str, Any]:
    path = folder / "pasted.log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return explain_log(path, **options).to_json()


@pytest.mark.parametrize(
    ("device", "named", "others"),
    [
        ("NVIDIA Jetson AGX Xavier", "jetson-agx-xavier", "orin"),
        ("Xavier NX", "xavier-nx", "orin"),
        ("NVIDIA Thor", "jetson-agx-thor", "orin"),
        ("Orin (nvgpu)", "jetson-orin-nx-8gb", "xavier"),
    ],
)
def test_boards_are_known_by_their_gpus_name(
    device: str, named: str, others: str, tmp_path: Path
) -> None:
    found = explained(f"[01/02/2026-10:00:00] [I] Selected Device: {device}\n", tmp_path)
    assert any(named in one for one in found["targets"])
    assert not any(others in one for one in found["targets"])


def test_no_fix_has_a_placeholder() -> None:
    for rule in load_rules().rules.values():
        facts = explained_rule(rule)
        for fix in (facts.fix, *(way.fix for way in facts.fixes)):
            assert not re.search(r"[\[{]", fix), rule.id


def each(before: str, after: str = "") -> Callable[[str], bytes]:
    return lambda text: "".join(f"{before}{line}{after}\n" for line in text.splitlines()).encode()


PASTED: dict[str, Callable[[str], bytes]] = {
    "quoted twice": each("> > "),
    "indented": each("    "),
    "a container's": each("\x1b[36medge-1  | \x1b[0m"),
    "ROS": each("[component_container_mt-1] "),
    "a journal": each("Nov 20 10:00:00 jetson app[12]: "),
    "logging": each("2026-11-20 10:00:00,123 INFO trt: "),
    "a clock": each("[10:00:00.123] "),
    "CI": each("build\tRun trtexec\t2026-11-20T10:00:00.1234567Z "),
    "the kernel's": each("[   12.345678] "),
    "numbered": each("  42  "),
    "colours": each("\x1b[33m", "\x1b[0m"),
    "spelt colours": each("^[[33m", "^[[0m"),
    "of a page": lambda text: html.escape(text).replace(" ", "\u00a0").encode(),
    "smart quotes": lambda text: text.replace("'", "\u2019").encode(),
    "Windows": lambda text: text.replace("\n", "\r\n").encode("utf-8-sig"),
    "PowerShell": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-be"),
}


@pytest.mark.parametrize("name", ["trtexec", "deepstream", "ultralytics"])
@pytest.mark.parametrize("form", PASTED)
def test_it_says_the_same_however_it_was_pasted(name: str, form: str, tmp_path: Path) -> None:
    def facts(document: dict[str, Any]) -> list[Any]:
        known = ("program", "passed", "targets", "unexplained", "unknown_errors", "times")
        return [
            *(document[key] for key in known),
            [(rule["rule"], rule["layers"]) for rule in document["rules"]],
            [error["id"] for error in document["errors"]],
            *(document["log"][key] for key in ("tensorrt", "precisions", "loadables")),
        ]

    text = (LOGS / f"{name}.txt").read_text()
    assert facts(explained(PASTED[form](text), tmp_path)) == facts(explained(text, tmp_path))


def test_the_command_at_a_prompt_says_what_was_asked(tmp_path: Path) -> None:
    text = "me@orin:~/nets$ /usr/src/tensorrt/bin/trtexec --onnx=a.onnx --fp16 --useDLACore=1\n"
    log = explained(text, tmp_path)["log"]
    assert (log["model"], log["precisions"], log["dla_core"]) == ("a.onnx", ["fp32", "fp16"], 1)


def test_every_known_error_is_whole() -> None:
    document = yaml.safe_load((data_folder("trt") / "log_errors.yaml").read_text())
    sections = ("dla", "parser", "errors", "crashes")
    rows = [row for section in sections for row in document[section]] + [document["refused"]]
    assert len({row["id"] for row in rows}) == len(rows) > 60
    assert len(document["dla"]) >= 25
    assert all(row["seen"] for row in document["dla"])
    for row in rows:
        assert set(row) <= {
            "id",
            "pattern",
            "cause",
            "remedy",
            "rules",
            "source",
            "seen",
            "releases",
            "stops",
            "follows",
            "says",
            "lower",
            "general",
        }
        assert row["source"]
        assert set(row.get("rules", ())) <= set(load_rules().rules)


def test_a_cut_log_says_what_it_does_not_show(tmp_path: Path) -> None:
    whole = (LOGS / "trtexec.txt").read_text()
    found = explained(whole[: whole.index("[11/20/2026-10:00:02]")], tmp_path)
    assert found["passed"] is None
    assert "does not say where" in found["headline"][1]
    assert found["rules"]


def test_a_model_adds_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_net(tmp_path / "model.onnx")
    text = (
        "[TRT] [I] Compute Capability: 8.7\n[TRT] [W] DLA cores do not support AVG Reduce operation"
        ".\n[TRT] [W] Layer 'gap' (REDUCE): Unsupported on DLA. Switching\n"
    )
    model = str(tmp_path / "model.onnx")
    compared = explained(text, tmp_path, model=model)["compare"]
    assert any("--target" in note for note in explained(text, tmp_path, model=model)["notes"])
    (gap,) = [layer for layer in compared["layers"] if layer["layer"] == "gap"]
    assert (gap["predicted"], gap["builder"], gap["status"]) == ("GPU", "GPU", "agree")
    assert run(str(tmp_path / "pasted.log"), "--model", model) == 0
    assert "The builder's log and the prediction agree on" in capsys.readouterr().out
    with pytest.raises(UsageError, match="needs a board"):
        explained("[TRT] [W] nothing\n", tmp_path, model=model)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "log.empty"),
        (b"\0\xff" * 5000, "log.unknown"),
        (b"x" * 3_000_000, "log.unknown"),
        (b"a letter\nabout trees\n", "log.unknown"),
        (b"ImportError: ./_C.so: undefined symbol: _ZN2at4_ops5empty\n", "log.unknown"),
        (b"Traceback (most recent call last):\nRuntimeError: no camera\n", "log.unknown"),
    ],
)
def test_what_is_no_log_is_refused(data: bytes, code: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        explained(data, tmp_path)
    assert caught.value.code == code
    if code == "log.unknown":
        assert "edgekit looks for" in caught.value.hint
        assert "DeepStream" in caught.value.hint


def test_huge_lines_of_a_log_cost_little(tmp_path: Path) -> None:
    line = b"[TRT] [E] " + b"DLA (" * 400_000
    found = explained(line + b"\n" + (LOGS / "trtexec.txt").read_bytes(), tmp_path)
    assert found["rules"]
    assert len(json.dumps(found)) < 100_000


@settings(max_examples=tries(40))
@given(cuts=st.lists(st.integers(0, 400), max_size=6), noise=st.binary(max_size=80))
def test_damaged_logs_are_explained_or_refused(
    cuts: list[int], noise: bytes, tmp_path: Path
) -> None:
    data = (LOGS / "trtexec.txt").read_bytes() + (LOGS / "deepstream.txt").read_bytes()
    for cut in cuts:
        data = data[: cut * 9] + noise + data[cut * 9 + 7 :]
    # what they leave is known to hold lines of TensorRT: nothing else may be raised
    with contextlib.suppress(UsageError):
        json.dumps(explained(data, tmp_path), allow_nan=False)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(["explain-log", *arguments])
    return int(end.value.code or 0)


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = io.TextIOWrapper(io.BytesIO((LOGS / "deepstream.txt").read_bytes()))
    monkeypatch.setattr(sys, "stdin", data)
    assert run("-", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["file"] == "standard input"
    assert document["rules"]


def test_an_error_about_standard_input_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"it does not work\n")))
    assert run("-", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["where"] == "standard input"


@pytest.mark.parametrize("option", ["--target=foo", "--precision=int2", "--tensorrt=10.3"])
def test_what_only_a_model_needs_is_refused_without_one(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(LOGS / "deepstream.txt"), option) == 2
    assert f"{option.partition('=')[0]} needs --model" in capsys.readouterr().err


def test_a_failure_is_said_once(tmp_path: Path) -> None:
    """And no option is advised that the build had."""
    small_net(tmp_path / "model.onnx")
    text = (
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --useDLACore=0 --fp16\n"
        "[E] [TRT] Cannot create DLA engine, 0 not available\n"
    )
    model = str(tmp_path / "model.onnx")
    warnings = explained(text, tmp_path, model=model, target=ORIN)["compare"]["warnings"]
    assert sum("Cannot create DLA engine" in one for one in warnings) == 1
    assert not any("--useDLACore" in one for one in warnings)


def test_text_and_markdown_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "answer.md"
    assert run(str(LOGS / "deepstream.txt"), "--markdown", str(page)) == 0
    text = capsys.readouterr().out
    for words in (
        "DeepStream log",
        "memory.loadables",
        "allowGPUFallback",
        "conv_9 ",
        "nobody has",
    ):
        assert words in text
        assert words in page.read_text()
