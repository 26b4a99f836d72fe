"""The documents on the wire: each is read whole and written as it was, and each fault of the corpus
is refused with its place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Tuple  # noqa: UP035 (as a board's documents have them)

import pytest
import yaml

from edgekit_device.benchmark.settings import BenchSettings, parse_settings
from edgekit_device.board.identity import RememberedBoard
from edgekit_device.board.power import PowerJournal
from edgekit_device.board.samples import EngineLoad
from edgekit_device.board.tegrastats import SetupRecord
from edgekit_device.build.request import BuildJobRequest, read_request
from edgekit_device.deployment.request import DeployRequest
from edgekit_device.deployment.request import read_request as read_deployment
from edgekit_device.errors import DeviceError
from edgekit_device.jobs.job import JobEvent, JobRequest, JobState
from edgekit_device.protocol.codec import (
    array,
    choice,
    dump,
    integer,
    load,
    mapping,
    member,
    names,
    nullable,
    read,
    record,
    records,
    text,
    write,
)
from edgekit_device.protocol.manifest import Manifest, parse
from edgekit_device.protocol.serving import Request, RunRequest, ServingRecord
from edgekit_device.release.changed import Health
from edgekit_device.release.journal import DeploymentFacts, HistoryEntry
from edgekit_device.release.offer import Envelope
from edgekit_device.release.policy import Policy, read_policy
from edgekit_device.store.root import Links
from edgekit_device.tensorrt.refit import RefittedPlan
from edgekit_device.trust.bundle import ReleaseRecord
from edgekit_device.trust.keys import TrustRequest
from tests.bundles.bundle_toys import document_of, toy_bundle
from tests.edgekit_device.build import toys as build_toys
from tests.edgekit_device.tensorrt.test_commands import trt_bundle
from tests.security.board_answers import SAMPLES

_TRT = document_of(trt_bundle("10.3.0", ["STRIP_PLAN"], fingerprint={}))
_ENGINE = next(iter(_TRT["engines"]))


def _parsed(document: Any) -> Manifest:
    return parse(json.dumps(document).encode())


def _reader(kind: type) -> Callable[[Any], Any]:
    return lambda document: read(kind, document, "all of it")


_DIGEST, _RELEASE = "0" * 64, "000001-" + "0" * 12
JOURNAL = {**SAMPLES["offer"]["deployment"], "state": "testing"}
ROLLBACK = SAMPLES["status"]["apps"]["net"]["history"][0]
_FAILURE = ROLLBACK["error"]
_JOB = {
    "job": "0" * 16,
    "kind": "build",
    "name": "net",
    "state": "failed",
    "queued_at": 1.5,
    "started_at": 2.5,
    "ended_at": None,
    "error": _FAILURE,
    "starts_by": 0.0,
}
_POWER = {
    "schema": "edgekit.power/1",
    "before": {"id": 2, "name": "15W"},
    "wanted": None,
    "stored": None,
    "state": "set",
    "error": None,
}
_RECORD = {
    "schema": "edgekit.release/1",
    "app": "toy",
    "id": _RELEASE,
    "digest": _DIGEST,
    "backend": "reference",
    "signer": "me",
    "trusted": False,
    "staged_at": JOURNAL["started_at"],
}
_TENSOR = {"name": "x", "dtype": "float32", "shape": [1, 4], "offset": 0}
_RUN = {"op": "run", "inputs": [_TENSOR], "room": {"offset": 64, "bytes": 64}}
_TRTEXEC = {"always": [], "gpu": [], "dla": [], "version_compatible": [], "timeout_s": 3.0}
_SETTINGS = {**write(BenchSettings()), "power_mode": "15W", "trtexec": _TRTEXEC}
_ENVELOPE = {"manifest": "{}", "signature": None}


def _settings(document: Any) -> Any:
    return parse_settings(json.dumps(document))


#: By kind: a document that the board keeps.
STORED: dict[str, tuple[Any, type]] = {
    "journal": (JOURNAL, DeploymentFacts),
    "roll back": (ROLLBACK, HistoryEntry),
    "links": ({"current": _RELEASE, "previous": None}, Links),
    "job request": ({"kind": "build", "request": {}}, JobRequest),
    "job state": (_JOB, JobState),
    "job event": ({"time": 1.5, "phase": "x", "done": 1, "total": 2, "text": ""}, JobEvent),
    "release": (_RECORD, ReleaseRecord),
    "health": (JOURNAL["health"], Health),
    "board facts": ({"module": "Toy", "board_id": None, "l4t": "36.4.3"}, RememberedBoard),
    "setup": ({"sudoers": "x", "groups": ["video"]}, SetupRecord),
    "power": (_POWER, PowerJournal),
    "run": (_RUN, RunRequest),
    "record of a server": (
        {"schema": "edgekit.serving-record/1", "pid": 7, "socket": "/x"},
        ServingRecord,
    ),
    "refitted plan": (
        {"schema": "edgekit.refitted/1", "engine": _DIGEST, "plan": _DIGEST, "tensorrt": "full"},
        RefittedPlan,
    ),
}

#: By kind: a good document, its reader, and the code of a refusal.
KINDS: dict[str, tuple[Any, Callable[[Any], Any], str]] = {
    **{name: (good, _reader(kind), "manifest.invalid") for name, (good, kind) in STORED.items()},
    "trust": ({"lines": []}, _reader(TrustRequest), "manifest.invalid"),
    "bench settings": (_SETTINGS, _settings, "usage"),
    "request of a server": ({"op": "stop"}, _reader(Request), "manifest.invalid"),
    "envelope": (_ENVELOPE, _reader(Envelope), "manifest.invalid"),
    "manifest": (document_of(toy_bundle()), _parsed, "manifest.invalid"),
    "engines": (_TRT, _parsed, "manifest.invalid"),
    "build request": (build_toys.request(), read_request, "build.request"),
    "policy": ({}, read_policy, "policy.invalid"),
    "deployment": ({"app": "toy", "digest": "0" * 64}, read_deployment, "deploy.bad-request"),
}
FAULTS: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "faulty_documents.yaml").read_text(encoding="utf-8")
)
CASES = [(kind, fault) for kind, faults in FAULTS.items() for fault in faults]


def _faulty(good: Any, fault: dict[str, Any]) -> Any:
    if "at" not in fault:
        return fault["value"]
    document = copy.deepcopy(good)
    *way, last = (_ENGINE if step == "ENGINE" else step for step in fault["at"])
    place = document
    for step in way:
        place = place[step]
    if fault.get("gone"):
        del place[last]
    else:
        place[last] = fault["value"]
    return document


@pytest.mark.parametrize(
    ("kind", "fault"),
    CASES,
    ids=[f"{kind}: {fault['where']} {fault.get('value')!r:.30}" for kind, fault in CASES],
)
def test_a_fault_is_refused_with_its_place(kind: str, fault: dict[str, Any]) -> None:
    good, reader, code = KINDS[kind]
    reader(good)
    with pytest.raises(DeviceError) as caught:
        reader(_faulty(good, fault))
    assert caught.value.code == fault.get("code", code)
    assert caught.value.where == fault["where"].replace("ENGINE", _ENGINE)


@pytest.mark.parametrize("kind", ["manifest", "engines", "bench settings", *STORED])
def test_what_is_read_is_written_as_it_was(kind: str) -> None:
    good, reader, _ = KINDS[kind]
    assert write(reader(good)) == good
    assert json.loads(dump(reader(good))) == good


def test_a_file_that_is_damaged_or_missing_is_none(tmp_path: Path) -> None:
    path = tmp_path / "links.json"
    links = Links(_RELEASE, None)
    for data in (b"", b"{", b"[]", b'{"current": null}', dump(links)[:-9], bytes(1 << 21)):
        path.write_bytes(data)
        assert load(Links, path) is None
    path.write_bytes(dump(links))
    assert load(Links, path) == links
    assert load(Links, path, 4) is None
    assert load(Links, tmp_path) is None
    assert load(Links, tmp_path / "none") is None


def test_what_is_left_out_is_not_written() -> None:
    request = read(DeployRequest, {"app": "toy", "digest": "0" * 64, "again": False})
    written = write(request)
    assert written.pop("policy") == write(Policy())
    assert written == {"app": "toy", "digest": "0" * 64, "again": False}


def test_a_policy_is_written_whole() -> None:
    written = write(read(Policy, {"soak_s": 3, "keep": 3}))
    assert written == {
        "latency_ms": None,
        "accuracy_min": None,
        "measure_s": 0.5,
        "soak_s": 3.0,
        "soak_every_s": 1.0,
        "keep": 3,
        "timeouts": {"refit_s": 600.0, "test_s": 300.0},
    }


def test_a_key_is_written_where_it_was_given() -> None:
    for given in ({"percent": 1.5}, {"on": None, "mhz": [612, 0.5]}):
        assert write(read(EngineLoad, given)) == given
    assert write(EngineLoad(True)) == {"on": True, "percent": None, "mhz": []}


def test_what_few_requests_need_may_be_left_out() -> None:
    document = copy.deepcopy(build_toys.request())
    del document["engines"][0]["data"]
    (engine,) = read(BuildJobRequest, document).engines
    assert engine.data == {}


@dataclass(frozen=True)
class Part:
    """A part of the document below."""

    name: str = member(text("[a-z]+", "a word"))
    sizes: Tuple[int, ...] = member(array(integer(0, 9), 1, 3), key="n", absent=())  # noqa: UP006


@dataclass(frozen=True)
class Whole:
    """A document with a rule of each kind."""

    parts: Tuple[Part, ...] = member(records(Part, by="name"))  # noqa: UP006
    by_name: Dict[str, Part] = member(mapping(record(Part)))  # noqa: UP006
    words: Tuple[str, ...] = member(names(1))  # noqa: UP006
    one: Optional[str] = member(nullable(choice("a", "b")))  # noqa: UP045


GOOD = {
    "parts": [{"name": "x", "n": [1, 2]}],
    "by_name": {"y": {"name": "y"}},
    "words": ["w"],
    "one": None,
}


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ({"parts": [{"name": "x", "n": [1, 10]}]}, "parts[0].n[1]", "10 is not within 0 to 9"),
        ({"parts": [{"name": "x", "n": []}]}, "parts[0].n", "0 entries"),
        ({"parts": [{"name": "x"}, {"name": "x"}]}, "parts", "must be different"),
        ({"parts": [{"name": "x", "m": 1}]}, "parts[0]", "unknown: 'm'"),
        ({"parts": {}}, "parts", "expected a list, found dict"),
        ({"by_name": {"y": {"name": "Y"}}}, "by_name.y.name", "'Y' is not a word"),
        ({"by_name": {"y": {}}}, "by_name.y", "missing: name"),
        ({"words": ["a\n"]}, "words", "control characters"),
        ({"words": [""]}, "words", "not empty"),
        ({"words": [True]}, "words[0]", "expected a string, found bool"),
        ({"one": "c"}, "one", "'c' is not one of a, b"),
        ({"more": 1}, "the document", "unknown: 'more'"),
    ],
)
def test_rules_say_where_and_what(change: dict[str, Any], where: str, message: str) -> None:
    assert write(read(Whole, GOOD)) == GOOD
    with pytest.raises(DeviceError, match=message) as caught:
        read(Whole, {**GOOD, **change}, "the document", code="some.code", hint="do this")
    assert (caught.value.where, caught.value.code) == (where, "some.code")
    assert caught.value.hint
