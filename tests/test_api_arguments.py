"""Every public function with wrong names, types and values raises EdgekitError, nothing else."""

import inspect
import json
import math

import pytest

import edgekit
from edgekit import api
from edgekit.config import options
from edgekit.config.schema import ConfigFile
from edgekit.errors import EdgekitError
from edgekit.results.recording import record
from tests.pipeline.nets import small_net
from tests.results.measurements import bench, bench_json, times

BOARD = "jetson-agx-orin-64gb"
MODEL = {"config": "small.onnx", "target": BOARD}
# what a function is called with that does its work here, or ends with an error of its own
CALLS = {
    "check": MODEL, "check_models": {"models": ["small.onnx"], "target": BOARD},
    "explain": {"name": "pooling"}, "explain_log": {"log": "small.onnx"},
    "export": {"source": "no.pt2", "target": BOARD},
    "compile": {"source": "no.pt2", "target": BOARD},
    "load": {"path": "no.ekb"}, "rewrite": MODEL, "list_rewrites": {}, "list_targets": {},
    "init": {"model": "small.onnx", "target": BOARD, "overwrite": True},
    "verify_rewrites": {"model": "small.onnx", "record": "no.json"},
    "calibrate": {**MODEL, "calibration": {"count": 1}},
    "to_qdq": {"config": "no.yaml", "out": "out.onnx"}, "from_qdq": {"model": "small.onnx"},
    "show_cache": {"cache": "a.cache"}, "diff_caches": {"first": "a.cache", "second": "a.cache"},
    "merge_caches": {"sources": ["a.cache"], "out": "out.cache"},
    "sensitivity": {**MODEL, "calibration": {"count": 1}},
    "build": {"config": "no.yaml"}, "bundle": {"config": "no.yaml"},
    "deploy": {"config": "no.yaml"},
    "refit": {"config": "no.yaml", "weights": "small.onnx"}, "infer": {"config": "no.yaml"},
    "detect": {"config": "no.yaml", "images": "no.jpg"},
    "bench": {"config": "no.yaml"}, "run": {"config": "no.yaml"}, "report": {"config": "no.yaml"},
    "add_power": {"bench": "bench.json", "tegrastats": "no.log"}, "rollback": {"config": "no.yaml"},
    "plan": MODEL, "plan_networks": {"config": "no.yaml"}, "why": {**MODEL, "layer": "conv1"},
    "what_if": {**MODEL, "changes": "pin conv1 GPU"}, "pareto": MODEL,
    "plan_table": {**MODEL, "modes": ["MAXN"]}, "tune": {"config": "no.yaml"},
    "trace": {"bench": "bench.json", "save": "t.json"}, "compare": {"a": "1", "b": "2"},
    "history": {}, "measurements": {}, "export_history": {"output": "h.csv"},
    "mark_measurement": {"which": "1", "name": "x"}, "prune_history": {"keep": 5, "dry_run": True},
    "read_document": {"source": "bench.json"}, "open_config": MODEL,
    "rollout": {"config": "no.yaml", "inventory": "no.yaml"},
    "apply_releases": {"inventory": "no.yaml", "state": "fleet"},
    "fleet_boards": {"inventory": "no.yaml"},
    "export_rollout": {"folder": "f", "config": "no.yaml"},
    **{name: {"where": "no.yaml"} for name in (
        "serve", "jobs", "set_up", "selftest", "trust", "top")},
    **{name: {"rollout": "none", "state": "fleet"} for name in (
        "resume_rollout", "roll_back_rollout", "rollout_status", "pause_rollout", "abort_rollout")},
    "rollouts": {"state": "fleet"}, "doctor": {"where": "no.yaml"},
    "watch_board": {"where": "no.yaml", "on_document": bool},
    **{name: {"job": "0123456789abcdef", "where": "no.yaml"} for name in (
        "watch_job", "job_log", "cancel_job", "remove_job")},
    "status": {}, "releases": {}, "remove": {},
}  # fmt: skip
WHERES = ("status", "releases", "remove")  # boards are their positional arguments
WRONG = [
    object(),
    5,
    -1,
    True,
    2.5,
    math.nan,
    math.inf,
    "bogus",
    "",
    "a\0b",
    b"x",
    [],
    [object()],
    {1: object()},
    None,
    lambda *values: None,
]
#: What names a board or host: text would be connected to.
_HOSTS = ("where", "board", "wheres")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGEKIT_HISTORY", str(tmp_path / "history.sqlite"))
    small_net(tmp_path / "small.onnx")
    (tmp_path / "a.cache").write_text("TRT-100300-EntropyCalibration2\nx: 3c010a14\n")
    (tmp_path / "bench.json").write_text(json.dumps(bench_json(times(9, 2.0, seed=1))))
    for seed in range(2):
        record(bench(times(50, 2.0, seed=seed)))
    return tmp_path


def call(function, /, *args, **kwargs):
    """Returns the EdgekitError of a call, or None; anything else fails the test."""
    try:
        getattr(edgekit, function)(*args, **kwargs)
    except EdgekitError as error:
        # what is expected of a configuration's key its message says
        hint = error.hint or (error.code == "config.invalid" and error.message)
        found = error.code, error.where, hint
        assert all(found), f"{function}: {error.message} has only {found}"  # noqa: PT017
        return error
    return None


def positional(name):
    return ("no.yaml",) if name in WHERES else ()


def parameters(name):
    """The names that a function takes, those of the configuration's keys among them."""
    found = []
    for parameter in inspect.signature(getattr(edgekit, name)).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            found += getattr(options, parameter.annotation[7:-1]).__annotations__
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            found.append(parameter.name)
    return found


NAMES = sorted(set(edgekit.__all__) - {"__version__"})


def test_all_functions_are_called():
    assert sorted(CALLS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_wrong_names_are_refused(name, here):
    for key in ("bogus", "targett"):
        error = call(name, *positional(name), **CALLS[name], **{key: 1})
        assert error is not None, f"{name}({key}=1) was accepted"
        assert error.code in ("api.argument", "config.invalid")
        assert key in error.message
        assert key in error.where
        assert error.hint
    too_many = ((None,) * 30) if name not in WHERES else (1, 2)
    error = call(name, *too_many)
    assert (error.code, bool(error.where), bool(error.hint)) == ("api.argument", True, True)


@pytest.mark.few(20)
@pytest.mark.parametrize("name", NAMES)
def test_wrong_types_and_values_are_edgekits_errors(name, here):
    plain = {"str", "int", "float", "bool"}
    signature = inspect.signature(getattr(edgekit, name))
    for key in parameters(name):
        known = signature.parameters.get(key)
        for value in WRONG:
            if key in _HOSTS and isinstance(value, str) and "\0" not in value:
                continue
            error = call(name, *positional(name), **{**CALLS[name], key: value})
            if known is not None and type(value) is object and known.annotation in plain:
                assert error is not None, f"{name}({key}) took an object"
                assert error.code == "api.argument"
                assert key in error.where
                assert error.hint
    for value in WRONG if name in WHERES else ():
        if not isinstance(value, str):
            assert call(name, value).code == "api.argument"


@pytest.mark.parametrize(
    ("name", "wrong", "where"),
    [
        ("sensitivity", {"metric": "bogus", "minimum": 0.9}, "metric"),
        ("compare", {"confidence": 2}, "confidence"),
        ("compare", {"threshold": "5%"}, "threshold"),
        ("compare", {"a": 1}, "a"),
        ("trace", {"files": "bench.json"}, "files"),
        ("history", {"name": 5}, "name"),
        ("top", {"bogus": 1}, "bogus"),
        ("pareto", {"first": "bogus"}, ""),
        ("plan", {"placement": 5}, "placement"),
        ("plan", {"precision": "int4"}, "precision"),
        ("serve", {"action": "bogus"}, "action"),
        ("remove", {"app": "x"}, "remove"),
        ("history", {"limit": -3}, "limit"),
        ("prune_history", {"keep": -5}, "keep"),
        ("check_models", {"fail_under": math.nan}, "fail_under"),
    ],
)
def test_the_error_says_where_and_what_to_do(name, wrong, where, here):
    error = call(name, **{**CALLS[name], **wrong})
    assert error is not None
    assert where in error.where
    assert error.where or not where
    assert error.hint


def test_keyword_arguments_are_declared():
    """No function takes arguments of any name: the configuration's keys are those of its schema."""
    own = {"compile": {"target", "calibration"}, "plan_table": {"power_mode"}}
    for name in NAMES:
        for parameter in inspect.signature(getattr(api, name)).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                assert parameter.annotation.startswith("Unpack[")
                keys = getattr(options, parameter.annotation[7:-1]).__annotations__
                assert {*keys} == {*ConfigFile.model_fields} - own.get(name, set())
