"""The manifest's reader: every field is checked, and nothing hostile gets further than an error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit_device.arrays.onnx_file import read_engine
from edgekit_device.errors import DeviceError
from edgekit_device.protocol.manifest import nbytes, parse
from tests.bundles.bundle_toys import artefacts, toy_bundle
from tests.tries import tries

GOOD: dict[str, Any] = json.loads(toy_bundle().manifest_bytes)


def refused(document: Any) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        parse(json.dumps(document).encode())
    return caught.value


def code_of(call: Callable[[], object]) -> str:
    """The code of the refusal, or nothing; any other exception fails the test."""
    try:
        call()
    except DeviceError as error:
        return error.code
    return ""


def test_a_record_of_rewrites_is_a_blob_of_its_own() -> None:
    digest = "ab" * 32
    blobs = {**GOOD["blobs"], digest: {"bytes": 7, "kind": "record"}}
    manifest = parse(json.dumps({**GOOD, "blobs": blobs, "rewrites": digest}).encode())
    assert manifest.blobs[digest].kind == "record"
    engine = GOOD["lanes"][0]["segments"][0]["engine"]
    for wrong in ("cd" * 32, engine, "record.json", 7, None, [digest]):
        assert refused({**GOOD, "blobs": blobs, "rewrites": wrong}).where == "rewrites"


def test_segments_on_the_cpu_and_a_call_need_the_networks_schema() -> None:
    digest = "ab" * 32
    document = copy.deepcopy(GOOD)
    document["blobs"][digest] = {"bytes": 7, "kind": "record"}
    document["lanes"][0]["segments"][-1]["device"] = "CPU"
    document["requires"]["cpu"] = True
    document["call"] = digest
    for lacking in ("call", "cpu"):
        other = copy.deepcopy(document)
        if lacking == "call":
            del other["call"]
        else:
            other["lanes"] = GOOD["lanes"]
        assert "edgekit.bundle/2" in refused(other).message
    document["schema"] = "edgekit.bundle/2"
    found = parse(json.dumps(document).encode())
    assert [segment.device for segment in found.on_cpu()] == ["CPU"]
    assert found.call == digest
    del document["requires"]["cpu"]
    assert refused(document).where == "requires.cpu"
    assert refused({**document, "call": "cd" * 32}).where == "call"


@pytest.mark.parametrize("field", sorted(set(GOOD) - {"requires"}))
def test_no_field_may_be_missing(field: str) -> None:
    document = {key: value for key, value in GOOD.items() if key != field}
    assert field in refused(document).message or field == "schema"


@pytest.mark.parametrize("field", sorted(GOOD))
@pytest.mark.parametrize("value", [None, 7, -1.5, "x" * 5000, [[]], {"a": {"b": []}}, True])
def test_no_field_may_be_of_another_kind(field: str, value: object) -> None:
    if field == "stripped" and value is True:
        return
    assert refused({**GOOD, field: value}).code in ("manifest.invalid", "manifest.schema")


FAULTS: dict[str, tuple[tuple[str | int, ...], object]] = {
    "a line break after a digest": (("model", "digest"), GOOD["model"]["digest"] + "\n"),
    "one digest, two sizes": (("weights", "b", "digest"), GOOD["weights"]["g"]["digest"]),
    "golden lane": (("golden", 0, "lane"), len(GOOD["lanes"])),
}


def test_a_golden_case_may_be_of_one_lane() -> None:
    document = copy.deepcopy(GOOD)
    last = len(document["lanes"]) - 1
    document["golden"][0]["lane"] = last
    found = parse(json.dumps(document).encode()).golden
    assert [case.lane for case in found] == [last, None]


def test_a_batch_of_no_inputs_has_no_labels() -> None:
    document, empty, x = copy.deepcopy(GOOD), "ab" * 32, "cd" * 32
    taken, given = document["inputs"][0], document["outputs"][0]
    given["shape"] = [0, 10]
    given["strides"] = [40, 4]
    document["blobs"][empty] = {"bytes": 0, "kind": "golden"}
    document["blobs"][x] = {"bytes": nbytes("float32", tuple(taken["shape"])), "kind": "sample"}
    for case in document["golden"]:
        case["outputs"][given["name"]].update(shape=[0, 10], blob=empty)
    sample = {"inputs": {taken["name"]: x}, "outputs": {given["name"]: empty}, "labels": []}
    facts = {"metric": "top1_accuracy", "source": "", "synthetic": False, "min": None}
    document["samples"] = {**facts, "cases": [sample]}
    manifest = parse(json.dumps(document).encode())
    assert manifest.samples is not None
    assert manifest.samples.cases[0].labels == ()
    sample["labels"] = [1]
    assert refused(document).where == "samples.cases[0].labels"


@pytest.mark.parametrize("case", FAULTS)
def test_what_does_not_fit_is_refused(case: str) -> None:
    path, value = FAULTS[case]
    document = copy.deepcopy(GOOD)
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert refused(document).code == "manifest.invalid"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{" * 100_000,
        b'{"schema": NaN}',
        b"1" * 10_000,
        b'{"schema": "edgekit.bundle/1", "schema": "edgekit.bundle/1"}',
    ],
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(DeviceError) as caught:
        parse(data)
    assert caught.value.code in ("manifest.invalid", "manifest.schema")


ENGINE = next(iter(artefacts().engines.values()))


@settings(max_examples=tries(200))
@given(st.integers(0, len(ENGINE) - 1), st.integers(0, 255), st.integers(0, len(ENGINE)))
def test_damaged_engines_are_read_or_refused(at: int, byte: int, cut: int) -> None:
    changed = bytearray(ENGINE)
    changed[at] = byte
    for data in (bytes(changed), ENGINE[:cut]):
        assert code_of(lambda: read_engine(data, "engine")) in ("", "engine.invalid")  # noqa: B023


def test_an_engine_says_its_weights_and_nodes() -> None:
    facts = read_engine(ENGINE, "engine")
    assert [(w.name, w.dtype, w.shape) for w in facts.weights] == [
        ("../w", "float32", (8, 3, 3, 3)),
        ("b", "float32", (8,)),
    ]
    assert [(n.name, n.op, n.outputs) for n in facts.nodes] == [
        ("conv1", "Conv", ("c",)),
        ("relu1", "Relu", ("t",)),
    ]
