"""A saved document is read as an object of the class that its schema names."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import edgekit
from edgekit.deployment.selftest import Selftest
from edgekit.errors import DataError, EdgekitError
from edgekit.quantize.caches import make_cache, write_cache
from edgekit.reference.sensitivity import ModuleImpact, SensitivityRanking
from edgekit.removed import FormerDict
from edgekit.saved_documents import DOCUMENTS, document_classes
from edgekit_device.deployment.status import ShownDeployment
from edgekit_device.protocol.codec import write
from edgekit_device.release.journal import (
    DeploymentEntry,
    DeploymentFacts,
    DeploymentResult,
    HistoryEntry,
)
from edgekit_device.selftest import SelftestResult
from tests.edgekit_device.test_device_documents import JOURNAL, ROLLBACK
from tests.pipeline.nets import small_net
from tests.test_document_models import APART, Schema, real_document

BOARD = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("net") / "small.onnx"
    small_net(path)
    return str(path)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "build.log"
    path.write_text("[I] [TRT] ---------- Layers Running on DLA ----------\n")
    return path


MADE: dict[str, Callable[[str, Path], Any]] = {
    "targets": lambda net, log: edgekit.list_targets(),
    "rule": lambda net, log: edgekit.explain("general.batch"),
    "family": lambda net, log: edgekit.explain("convolution"),
    "operator": lambda net, log: edgekit.explain("Conv"),
    "rewrite-list": lambda net, log: edgekit.list_rewrites(),
    "check": lambda net, log: edgekit.check(net, target=BOARD),
    "checks": lambda net, log: edgekit.check_models([net, net], target=BOARD).document,
    "compared": lambda net, log: _checked(net).compare(log),
    "layer": lambda net, log: _checked(net).layer(_checked(net).document.layers[0].name),
    "sparsity": lambda net, log: _checked(net).sparsity(),
    "log": lambda net, log: edgekit.explain_log(log, model=net, target=BOARD),
    "rewrite": lambda net, log: edgekit.rewrite(net, target=BOARD),
    "plan": lambda net, log: edgekit.plan(net, target=BOARD),
    "why": lambda net, log: edgekit.why(net, "conv1", target=BOARD),
    "what-if": lambda net, log: edgekit.what_if(net, "mode 30W", target=BOARD),
    "pareto": lambda net, log: edgekit.pareto(net, "latency_us", "energy_uj", target=BOARD),
    "table": lambda net, log: edgekit.plan_table(net, modes=["MAXN"], target=BOARD),
    "history": lambda net, log: edgekit.history(),
    "cache": lambda net, log: edgekit.show_cache(_cache(net)),
    "cache beside a model": lambda net, log: edgekit.show_cache(_cache(net), net),
    "caches compared": lambda net, log: edgekit.diff_caches(_cache(net), _cache(net)),
}


def _cache(net: str) -> Path:
    path = Path(net).with_suffix(".cache")
    write_cache(make_cache({"x": 0.5, "c1": 0.25, "gone": 0.125}, "10.3"), path)
    return path


def _checked(net: str) -> Any:
    return edgekit.check_models([net], target=BOARD).results[0]


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_saved_document_reads_back(
    make: Callable[[str, Path], Any], net: str, log: Path, tmp_path: Path
) -> None:
    made = make(net, log)
    path = tmp_path / "saved.json"
    path.write_text(json.dumps(made.to_json()))
    parsed = json.loads(path.read_text())
    for source in (path, parsed):
        found = edgekit.read_document(source)
        assert isinstance(found, type(made))
        assert json.loads(json.dumps(found.to_json())) == parsed


@pytest.mark.parametrize("name", sorted(set(DOCUMENTS) - APART))
def test_a_recorded_document_of_each_class_reads_back(name: str) -> None:
    recorded = real_document(name, Schema(name))
    found = edgekit.read_document(recorded)
    written = found.to_json() if hasattr(found, "to_json") else write(found)
    assert _stated(json.loads(json.dumps(written))) == _stated(recorded)


def _stated(value: Any) -> Any:
    """A document without what says nothing, which a board leaves out of its samples."""
    if isinstance(value, dict):
        stated = {key: _stated(one) for key, one in value.items()}
        return {key: one for key, one in stated.items() if one not in (None, [], {})}
    return [_stated(one) for one in value] if isinstance(value, list) else value


#: Keys that the plans of former versions lack, wherever they are in a document.
YOUNGER = {
    "slack",
    "launch_us",
    "launch_uj",
    "border_us",
    "border_uj",
    "uj",
    "unfused",
    "builder",
    "bands",
    "measured",
    "constraints",
    "baselines_keep",
    "baselines_rewritten",
    "kept_off",
    "extrapolated",
    "energy",
    "frame",
    "doubts",
}


def _without(value: Any, keys: set[str]) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, keys) for key, one in value.items() if key not in keys}
    return [_without(one, keys) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["plan", "why", "what-if", "table"])
def test_a_document_from_before_the_slack_reads_back(name: str, net: str, log: Path) -> None:
    today = json.loads(json.dumps(MADE[name](net, log).to_json()))
    former = _without(today, {"slack"})
    assert former != today
    assert json.loads(json.dumps(edgekit.read_document(former).to_json())) == former


def test_a_plan_of_a_former_version_has_the_same_layers_and_times(net: str, log: Path) -> None:
    today = edgekit.plan(net, target=BOARD)
    former = edgekit.read_document(_without(json.loads(json.dumps(today.to_json())), YOUNGER))
    assert former.layers == today.layers
    assert former.predicted == today.predicted
    assert former.slack is None
    assert former.constraints.min_loadable_layers == 1


_LINE = {key: JOURNAL[key] for key in JOURNAL if key not in ("policy", "health", "steps")}
_TESTED = {"schema": "edgekit.selftest/1", "fingerprint": {"machine": "aarch64"}, "items": []}


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (ROLLBACK, HistoryEntry),
        (_LINE, DeploymentEntry),
        (JOURNAL, DeploymentFacts),
        ({**JOURNAL, "alive": False}, ShownDeployment),
        ({**JOURNAL, "refit": {}, "changed": True}, DeploymentResult),
        (_TESTED, SelftestResult),
        ({**_TESTED, "counts": {}, "board": {"kind": "ssh"}}, Selftest),
    ],
)
def test_each_form_that_a_board_or_the_host_writes_is_read(
    written: dict[str, Any], kind: type
) -> None:
    found = edgekit.read_document(written)
    assert type(found) is kind
    assert write(found) == written


def test_a_key_that_a_form_lacks_is_named() -> None:
    lacking = {key: value for key, value in _LINE.items() if key != "digest"}
    for wrong, words in ((lacking, "missing: digest"), ({**_LINE, "a": 1}, "unknown: 'a'")):
        with pytest.raises(DataError, match=words):
            edgekit.read_document(wrong)


def test_the_document_of_a_failure_reads_back(net: str) -> None:
    with pytest.raises(EdgekitError) as caught:
        edgekit.plan(net, target="jetson-agx-orin")
    found = edgekit.read_document(write(caught.value.document()))
    assert found.error.code == caught.value.code


@pytest.mark.parametrize("part", ["accuracy", "built", "parse", "binding", "taken_back"])
def test_a_part_of_a_failure_that_is_none_is_refused(part: str) -> None:
    error = {"code": "a", "message": "b", "where": "", "hint": ""}
    with pytest.raises(DataError) as caught:
        edgekit.read_document({"error": error, part: {"spam": -1, "device": "XPU"}})
    assert caught.value.where == part


def test_the_layers_of_a_failure_have_reasons_with_all_their_parts() -> None:
    layers = [{"name": "a", "reasons": [{"spam": -1}]}]
    error = {"code": "a", "message": "b", "where": "", "hint": "", "layers": layers}
    with pytest.raises(DataError) as caught:
        edgekit.read_document({"error": error})
    assert caught.value.where == "error.layers[0].reasons[0]"


def test_models_and_codec_classes_name_an_unknown_key_alike(net: str) -> None:
    plan = edgekit.plan(net, target=BOARD).to_json()
    plan["layers"][0]["spam"] = 1
    for document, where in (
        (plan, "layers[0]"),
        ({"schema": "edgekit.trust/1", "boards": [], "spam": 1}, "edgekit.trust/1"),
        ({"schema": "edgekit.history/1", "results": [], "spam": 1}, "edgekit.history/1"),
    ):
        with pytest.raises(DataError) as caught:
            edgekit.read_document(document)
        assert caught.value.where == where
        assert caught.value.message.endswith(": unknown: 'spam'")


@pytest.mark.parametrize(
    ("text", "code", "where", "message", "hint"),
    [
        ("{", "document.json", ":1:2", "not JSON", ""),
        ("[]", "document.schema", "", "does not name its schema", "documents.md"),
        ('{"schema": "edgekit.cake/1"}', "document.schema", "", "'edgekit.cake/1'", "documents"),
        ('{"schema": "edgekit.plan/7"}', "document.schema", "", "edgekit.plan/1", "edgekit plan"),
        (
            '{"schema": "edgekit.init/1", "path": "a", "colour": 1}',
            "document.invalid",
            "",
            "unknown: 'colour'",
            "write it anew with edgekit init",
        ),
        (
            '{"schema": "edgekit.trust/1", "boards": [{"board": 3}]}',
            "document.invalid",
            ": boards[0]",
            "missing: ",
            "edgekit trust",
        ),
        (
            '{"schema": "edgekit.history/1", "results": [{"id": "x"}]}',
            "document.invalid",
            ": results[0].id",
            "edgekit.history/1: ",
            "edgekit history",
        ),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_its_place(
    text: str, code: str, where: str, message: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "saved.json"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        edgekit.read_document(str(path))
    error = caught.value
    assert (error.code, error.where) == (code, f"{path}{where}")
    assert message in error.message
    assert hint in error.hint
    assert "deploy" not in error.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        edgekit.read_document(tmp_path / "none.json")
    assert caught.value.code == "document.unreadable"
    assert caught.value.where == str(tmp_path / "none.json")


def returned(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from returned(one)


def test_each_document_that_the_api_returns_is_in_the_table() -> None:
    for found in pkgutil.walk_packages(edgekit.__path__, "edgekit."):
        if not found.name.endswith(("__main__", "edgekit_recap")):
            importlib.import_module(found.name)
    listed = {kind for name in DOCUMENTS for kind in document_classes(name)}
    families = {base for kind in listed for base in kind.__mro__}
    # a part of a trace, which names its schema there; and the first line of a tuning's journal
    parts = {"TraceFacts", "JournalStart"}
    named = [
        one
        for one in returned(FormerDict)
        if one.__module__.startswith("edgekit.")
        and {"schema", "schema_"} & {*getattr(one, "__annotations__", ())}
    ]
    assert len(named) > 50
    assert [
        f"{one.__module__}.{one.__name__}"
        for one in named
        if one not in families and one.__name__ not in parts
    ] == []


def test_the_sensitivity_of_a_module_may_be_below_zero_decibels() -> None:
    worst = ModuleImpact(
        module="head", kernels=1, devices={"DLA0": 1}, snr_db=-3.5, cosine=-0.25, floats=0
    )
    ranking = SensitivityRanking(
        samples=1,
        kernels=(),
        floats=(),
        proposal=None,
        model="net.onnx",
        target=BOARD,
        data="samples.npz",
        method="entropy",
        notes=(),
        modules=(worst,),
    )
    assert edgekit.read_document(write(ranking)) == ranking


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ("2024.5.4", "str"),
        (["RAM 1/2MB"], "tuple"),
        ({"conv": True}, "dict"),
        ({"reused": True, "after": 3}, "TimingCacheUse"),
        ({"plan": "10.3", "runtime": "10.3", "loaded": True}, "LoadedAnswer"),
        ({"inputs": [{"name": "x", "bytes": 64}], "outputs": []}, "CudlaAnswer"),
        ({"command": None, "why": "no times", "lines": [], "times": ""}, "TrtexecAnswer"),
        ({"modes": [], "now": ["NV Power Mode: MAXN"]}, "PowerAnswer"),
        ({"code": "a.b", "message": "no", "where": "", "hint": ""}, "Failure"),
    ],
)
def test_what_a_selftest_found_is_of_its_class(found: Any, kind: str) -> None:
    row = {"id": "a", "what": "b", "expected": "c", "status": "answered", "seconds": 1.0}
    document = {
        "schema": "edgekit.selftest/1",
        "fingerprint": {},
        "items": [{**row, "found": found}],
    }
    (item,) = edgekit.read_document(document).items
    assert type(item.found).__name__ == kind
    assert json.loads(json.dumps(write(item.found))) == found


@pytest.mark.parametrize(
    ("name", "place", "value", "where"),
    [
        ("bench/1", ("latency_ms", "p77"), 1.0, "latency_ms"),
        ("bench/1", ("segments", 0, "latency_ms"), {"p77": 1.0}, "segments[0].latency_ms"),
        ("bench/1", ("phases_ms",), {"lunch": None}, "phases_ms"),
        ("bench/1", ("runtime", "flags"), {"streams": "many"}, "runtime.flags.streams"),
        (
            "bench/1",
            ("verdict", "reasons"),
            [{"code": "bench.swap", "message": "it swapped", "found": "much"}],
            "verdict.reasons[0].found",
        ),
        ("pareto/1", ("bounds",), {"beauty": 1.0}, "bounds"),
        ("plans/1", ("contention", "slowdown"), {"cpu": {}}, "contention.slowdown"),
        ("plans/1", ("contention", "slowdown"), {"gpu": {"cpu": 1.0}}, "contention.slowdown.gpu"),
        ("deployment/1", ("steps", 0, "seconds"), -1.0, "steps[0].seconds"),
    ],
)
def test_an_unknown_name_and_a_value_of_another_kind_are_refused(
    name: str, place: tuple[Any, ...], value: Any, where: str
) -> None:
    schema = f"edgekit.{name}"
    document = JOURNAL if name == "deployment/1" else real_document(schema, Schema(schema))
    wrong = json.loads(json.dumps(document))
    inner = wrong
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    edgekit.read_document(document)
    with pytest.raises(DataError) as caught:
        edgekit.read_document(wrong)
    assert caught.value.where.startswith(where)
