"""What the commands that need no board answer, for each network and board: a golden file each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

import edgekit_device
from edgekit.benchmark.document import bench_document
from edgekit.targets.loader import get
from edgekit_device.benchmark.measurement import Measurement
from edgekit_device.protocol.codec import read
from tests.benchmark import handmade_plan
from tests.benchmark.test_verdict import idle, power, sample
from tests.contracts.brief import brief, digest_of
from tests.contracts.conftest import ROOT, Answer, Golden
from tests.contracts.networks import BOARDS, CONSTRUCTED, LIGHT, model_of, plans_of
from tests.contracts.normalise import normalised

ALL = [(network, board) for network in (*CONSTRUCTED, *LIGHT) for board in BOARDS]
CONFIGURATIONS = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))
BUILT = ("shufflenet-orin-nano", "squeezenet-latency")
# ONNX Runtime's numbers, which differ a little between kinds of CPU, and much behind a threshold
MEASURED = ("calibrate", "build", "bundle", "infer")
CONFIG = """\
version: 1
name: {network}
model: {{{model}}}
target: {target}
precision: {precision}
calibration: {{method: entropy, count: 2}}
"""


class Commands:
    """Runs commands and keeps what they answered, in short."""

    def __init__(self, command: Callable[..., Answer], folder: Path) -> None:
        self._command, self._folder = command, folder
        self.found: dict[str, Any] = {}

    def __call__(self, name: str, *arguments: object) -> None:
        answer = self._command(*arguments)
        document = normalised(
            answer.document, {str(self._folder): "<tmp>", str(ROOT): "<checkout>"}
        )
        self.found[name] = {"exit": answer.exit, **brief(document)}


@pytest.fixture
def commands(command: Callable[..., Answer], tmp_path: Path) -> Commands:
    return Commands(command, tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize(("network", "board"), ALL)
def test_a_network_on_a_board(
    network: str, board: str, commands: Commands, golden: Golden, tmp_path: Path
) -> None:
    target, precision = BOARDS[board]
    model = model_of(network, tmp_path)
    on = ("--target", target, "--precision", precision)
    commands("check", "check", model, *on)
    commands("rewrite", "rewrite", model, *on, "--save", tmp_path / "rewritten.onnx")
    commands.found["rewrite"]["bytes"] = digest_of(tmp_path / "rewritten.onnx")
    for name, options in plans_of(board).items():
        commands(f"plan {name}", "plan", model, *on, *options)
    if precision == "int8":
        few = ("--count", 2, "--method", "entropy", "--save", tmp_path / "calib.cache")
        commands("calibrate", "calibrate", model, "--target", target, *few)
        if commands.found["calibrate"]["exit"] == 0:
            commands.found["calibrate"]["bytes"] = digest_of(tmp_path / "calib.cache")

    config = tmp_path / "config.yaml"
    source = f"builtin: {network}" if network in LIGHT else f"onnx: {network}.onnx"
    config.write_text(
        CONFIG.format(
            network=network.replace("_", "-"), model=source, target=target, precision=precision
        )
    )
    commands("build", "build", config)
    commands("bundle", "bundle", config, "--out", tmp_path / "out", "--full", tmp_path / "full.ekb")
    if commands.found["bundle"]["exit"] != 0:  # the board cannot parse it
        golden(f"networks/{network}-{board}", commands.found, measured=MEASURED)
        return
    if network in CONSTRUCTED:
        found = commands.found["bundle"]
        del found["bytes"], found["stripped_bytes"]
        found["digest"] = digest_without(tmp_path, tmp_path / "full.ekb")
    commands.found["infer"] = outputs_of(tmp_path / "full.ekb")
    golden(f"networks/{network}-{board}", commands.found, measured=MEASURED)


def digest_without(folder: Path, bundle: Path) -> str:
    """The digest of a manifest, whose model is a file in the test's folder."""
    with ZipFile(bundle) as packed:
        text = packed.read("manifest.json")
    return digest_of(text.replace(str(folder).encode(), b"<tmp>"))


def outputs_of(bundle: Path) -> dict[str, Any]:
    """What a bundle's engines answer to fixed random inputs."""
    random = np.random.default_rng(0)
    model = edgekit_device.load(bundle, trust_unsigned=True, threads=1)
    inputs = {one.name: random.standard_normal(one.shape).astype(one.dtype) for one in model.inputs}
    return {
        name: {
            "dtype": str(value.dtype),
            "shape": [*value.shape],
            "sum": brief(float(np.sum(value, dtype=np.float64))),
            "bytes": digest_of(value.tobytes()),
        }
        for name, value in model(inputs).items()
    }


@pytest.mark.parametrize("network", CONSTRUCTED)
@pytest.mark.whole
def test_the_page_of_a_plan(
    network: str, command: Callable[..., Answer], golden: Golden, tmp_path: Path
) -> None:
    model = model_of(network, tmp_path)
    pages = {}
    for board, (target, precision) in BOARDS.items():
        path = tmp_path / f"{board}.html"
        on = ("--target", target, "--precision", precision)
        answer = command("plan", model, *on, "--report", path)
        if answer.exit:
            pages[board] = {"refused": answer.document["error"]["code"]}
            continue
        pages[board] = parts_of(path.read_text().replace(str(tmp_path), "<tmp>"))
    golden(f"networks/page-{network}", pages)


def parts_of(page: str) -> dict[str, str]:
    """A page by its headings, without the time that each step took."""
    page = re.sub(r'(</th><td>\w+</td><td class="num">)[\d.,]+ (ms|s)<', r"\1<time><", page)
    found = {}
    for part in page.split("<h2"):
        heading = re.match(' id="([a-z-]+)-title"', part)
        found[heading[1] if heading else "head"] = digest_of(part.encode())
    return found


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.whole
def test_a_configuration(name: str, commands: Commands, golden: Golden, tmp_path: Path) -> None:
    path = ROOT / "configs" / f"{name}.yaml"
    commands("plan", "plan", path)
    if name != "several-networks":
        commands("check", "check", path)
        commands("rewrite", "rewrite", path)
    if name in BUILT:
        commands("build", "build", path)
        commands("bundle", "bundle", path, "--out", tmp_path)
    golden(f"networks/configuration-{name}", commands.found, measured=MEASURED)


def test_lists_and_explanations(commands: Commands, golden: Golden) -> None:
    commands("targets", "targets")
    commands("rewrite --list", "rewrite", "--list")
    for what in ("convolution", "memory", "sparsity", "pooling.window", "Gather", "HardSwish"):
        commands(f"explain {what}", "explain", what)
    golden("lists", commands.found)


def test_a_configuration_is_begun(commands: Commands, golden: Golden, tmp_path: Path) -> None:
    written = tmp_path / "net.yaml"
    commands("init", "init", "builtin:light_squeezenet", "--output", written)
    commands.found["init"]["bytes"] = digest_of(written)
    commands("init again", "init", "builtin:light_squeezenet", "--output", written)
    golden("control/init", commands.found)


def test_a_measurement_that_is_valid(golden: Golden) -> None:
    """The document of ``bench``; what a loaded CPU measures gets another verdict each time."""
    measured = {
        **handmade_plan.measurement(),
        "clock": "board-measured",
        "iterations": 1600,
        "samples_ms": [2.0, 2.001] * 800,
        "power": power(),
        "monitor": {"samples": [sample(t / 10) for t in range(31)], "idle": idle(), "facts": {}},
    }
    target = get("jetson-agx-orin-64gb")
    document = bench_document(read(Measurement, measured), handmade_plan.plan(), target=target)
    golden("control/bench-valid", document.to_json())


def test_build_logs_are_explained(
    commands: Commands, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = Path(__file__).parents[1]
    for folder, suffix in (("data/build_logs", ".txt"), ("buildlog/data", ".log")):
        monkeypatch.chdir(tests / folder)
        for path in sorted((tests / folder).glob(f"*{suffix}")):
            commands(f"explain-log {path.stem}", "explain-log", path.name)
    golden("logs", commands.found)
