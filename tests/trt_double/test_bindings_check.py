"""The rules of scripts/check_bindings.py, tried on the carried data and on code that is wrong."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.trt_double import _api

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import _bindings_rules

    yield _bindings_rules
    for name in [name for name in sys.modules if name.startswith("_bindings_")]:
        del sys.modules[name]


def code(rules: Any, folder: Path, text: str) -> Any:
    """The uses of one file of the board's code."""
    package = folder / "edgekit_device" / "tensorrt"
    package.mkdir(parents=True, exist_ok=True)
    (package / "engine.py").write_text(text)
    from _bindings_used import collect

    return collect(folder)


def test_the_boards_code_uses_declared_names_that_every_release_has(rules: Any) -> None:
    from _bindings_used import collect

    used, uses = rules.read_declared(ROOT), collect(ROOT)
    carried = {version: _api.symbols(version) for version in _api.VERSIONS}
    assert rules.find_undeclared(used, uses, carried.values()) == []
    for version, names in carried.items():
        lean = {name: entry for name, entry in names.items() if entry.get("lean")}
        for flavour, module in (("full", names), ("lean", lean)):
            assert rules.find_missing(used, module, version, flavour) == []
            assert rules.find_wrong_calls(used, uses, module, version, flavour) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("trt.BuilderFlags", "trt.BuilderFlags is not declared"),
        ("flags = trt.BuilderFlag\nflags.BF16", "trt.BuilderFlag.BF16 is not declared"),
        ("engine.get_tensor_vectorized_dim('x')", ".get_tensor_vectorized_dim is not declared"),
        ("getattr(trt, 'Refiter')", "trt.Refiter is not declared"),
        ("code = 'trt.Nothing()'", "trt.Nothing is not declared"),
    ],
)
def test_undeclared_names_are_found(rules: Any, tmp_path: Path, text: str, why: str) -> None:
    uses = code(rules, tmp_path, text)
    wrong = rules.find_undeclared(rules.read_declared(ROOT), uses, [_api.symbols("10.3.0")])
    assert any(why in line for line in wrong if not line.startswith("used.yaml"))


@pytest.mark.parametrize(
    ("text", "release", "why"),
    [
        ("builder.create_network(0, 1)", "10.3.0", "create_network with 2 arguments"),
        ("builder.create_network(flag=0)", "10.3.0", "create_network with 0 arguments"),
        ("runtime.load_runtime()", "11.4.0", "load_runtime with 0 arguments"),
        (
            "class M(trt.IProgressMonitor):\n    def step_complete(self, phase): ...",
            "10.3.0",
            "IProgressMonitor.step_complete takes 2 arguments, not 1",
        ),
        (
            "class R(trt.IStreamReaderV2):\n    def read(self, destination, size, stream): ...",
            "10.7.0",
            "IStreamReaderV2.read takes 2 arguments, not 3",
        ),
    ],
)
def test_wrong_calls_are_found(
    rules: Any, tmp_path: Path, text: str, release: str, why: str
) -> None:
    uses, names = code(rules, tmp_path, text), _api.symbols(release)
    wrong = rules.find_wrong_calls(rules.read_declared(ROOT), uses, names, release, "full")
    assert any(why in line for line in wrong)


def test_a_name_that_a_release_lacks_is_found(rules: Any) -> None:
    used = deepcopy(rules.read_declared(ROOT))
    used["runtime"]["all"].append("ICudaEngine.create_serialization_config")
    assert rules.find_missing(used, _api.symbols("8.6.1"), "8.6.1", "full") == [
        "ICudaEngine.create_serialization_config (all)"
    ]


def test_data_that_differs_from_the_bindings_is_found(rules: Any) -> None:
    ours = _api.symbols("10.3.0")
    real = deepcopy(ours)
    for name, entry in real.items():
        if entry["kind"] == "class":
            entry["bases"] = sorted(rules._ancestors(ours, name))
    assert rules.compare(ours, real) == []
    del real["Builder.reset"]
    real["Builder.more"] = {"kind": "method", "sig": ["more(self: Builder) -> None"]}
    real["DataType.HALF"] = {"kind": "enum_member", "value": 77}
    real["Builder.create_network"]["sig"] = ["create_network(self: Builder) -> None"]
    real["Runtime.DLA_core"]["writable"] = False
    assert len(rules.compare(ours, real)) == 5
