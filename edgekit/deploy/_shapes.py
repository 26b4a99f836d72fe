"""What the host relies on in a board's answers: the form of each, and the test of it.

A form is a type ("text", "count", "number", "flag" or "any"; with a "?" behind it also null), a
list ``[form]``, a map by any name ``{"*": form}``, an object ``{field: form}``, or one of these or
null ``(form, None)``. A field whose name ends in "?" may be absent; of the answer's own level each
may be, since whoever asks for one that is not there is told. Fields without a form are only shown.
"""

from __future__ import annotations

from typing import Any

from edgekit.deploy._shapes_bench import BENCH

__all__ = ["ANSWERS", "RESULTS", "misshapen"]

_FLAVOURS: Any = {"full": "text?", "lean": "text?", "dispatch": "text?"}
_ERROR: Any = {"code": "text", "message": "text", "where?": "text?", "hint?": "text?"}
_FINGERPRINT: Any = {"*": "text?"}
_JOB: Any = {"job": "text", "state": "text", "reused": "flag", "joined": "flag"}
_JOB_ROW: Any = {
    "job": "text", "kind": "text?", "name": "text?", "state": "text", "queued_at": "number?",
    "started_at": "number?", "ended_at": "number?", "phase": "text", "done": "count",
    "total": "count", "error": ({"message?": "text?", "code?": "text?"}, None),
}  # fmt: skip
_EVENT: Any = {
    "n": "count", "time": "number", "phase": "text", "done": "count", "total": "count",
    "text": "text",
}  # fmt: skip
_PERCENTILES: Any = {"*": "number?"}
_SERVING: Any = {
    "release": "text?", "pid": "count?", "requests": "count", "errors": "count",
    "last_error": ({"message": "text", "code": "text", "*": "any"}, None),
    "latency_ms": (_PERCENTILES, None),
}  # fmt: skip
_CHANGED: Any = {
    "release?": "text?", "error?": (_ERROR, None),
    "changes?": [{"what": "text", "from": "text", "to": "text"}],
}  # fmt: skip
_DEPLOYMENT: Any = {
    "state": "text", "id?": "text", "digest?": "text?", "release?": "text?", "previous?": "text?",
    "operator?": "text?", "started_at?": "any", "state_at?": "any", "alive?": "flag",
    "policy?": ({"*": "any"}, None), "error?": (_ERROR, None),
    "health?": ({"golden?": ({"*": "any"}, None), "notes?": (["text"], None)}, None),
}  # fmt: skip
_TAKEN_BACK: Any = ({"release": "text", "at": "text", "reason": "text"}, None)
_RELEASE: Any = {
    "id": "text", "digest?": "text?", "backend?": "text?", "signer?": "text?",
    "staged_at?": "text?", "ready?": "flag", "taken_back?": _TAKEN_BACK,
}  # fmt: skip
_APP: Any = {
    "current": "text?", "previous": "text?", "releases": [_RELEASE], "taken_back?": _TAKEN_BACK,
}  # fmt: skip
_APP_STATUS: Any = {
    **_APP, "deployment": (_DEPLOYMENT, None), "history?": [{"error?": (_ERROR, None)}],
    "serving": ({"release?": "text?", "error?": _ERROR, "latency_ms?": (_PERCENTILES, None)}, None),
    "changed?": (_CHANGED, None), "error?": (_ERROR, None),
    "refused?": [{"release": "text", "code": "text", "message": "text"}],
}  # fmt: skip
_HELLO: Any = {
    "schema": "text", "version": "text?", "loader": "text?", "python": "text?",
    "machine": "text?", "numpy": "text?", "onnxruntime": "text?", "ssh_keygen": "text?",
    "backends": ["text"], "root": "text", "free_bytes": "count?", "module": "text?",
    "board_id": "text?", "l4t": "text?", "tensorrt": "text?", "memory_bytes": "count?",
}  # fmt: skip

#: By the loader's command. Those without a form here have answers of no inner form.
ANSWERS: dict[str, Any] = {
    "place": {"ready": "flag", "root?": "text", "path?": "text", "groups?": ["count"],
              "user?": "text", "releases?": ["text"]},
    "hello": _HELLO,
    "trust": {
        "added": "count", "removed": "count", "revoked": "count", "signers": ["text"],
        "keys": [{"identity": "text", "kind": "text", "fingerprint": "text",
                  "authority?": "flag", "valid_after?": "text?", "valid_before?": "text?"}],
        "revocations": {"kind": "text", "fingerprints": ["text"]},
        "refused": [{"app": "text", "release": "text", "role": "text", "code": "text",
                     "message": "text"}],
    },
    "missing": {"missing": ["text"]},
    "offer": {"known": "flag", "digest": "text", "app": "text", "signer": "text?",
              "missing": ["any"], "serving": "text?", "taken_back": _TAKEN_BACK,
              "deployment": (_DEPLOYMENT, None), "hello": _HELLO},
    "rollback": {
        "app": "text", "current": "text?", "previous": "text?", "from": "text?",
        "taken_back": _TAKEN_BACK,
    },
    "releases": {"apps": {"*": _APP}},
    "remove": {"removed": ["text"]},
    "status": {
        "schema": "text", "board": {"*": "any"}, "apps": {"*": _APP_STATUS},
        "store": {"blobs": "count", "bytes": "count", "partial_bytes": "count"},
        "free_bytes": "count",
    },
    "resume": {"resumed": [{"app": "text", "job": "text", "state": "text"}]},
    "serve": {"app": "text", "serving": (_SERVING, None), "taken_back": _TAKEN_BACK},
    "serve-status": {"app": "text", "serving": (_SERVING, None), "taken_back": _TAKEN_BACK},
    "serve-stop": {"app": "text", "stopped": "flag"},
    "serve-unit": {"app": "text", "unit": "text", "file": "text?", "installed": "flag",
                   "text": "text", "notes": ["text"]},
    "setup": {"state": "text", "text": "text", "sudoers": "any", "groups": "any", "script": "any"},
    "bench": BENCH,
    "job-start": _JOB,
    "job-list": {"jobs": [_JOB_ROW]},
    "job-watch": {"state": "text", "events": [_EVENT], "next": "count",
                  "ended": "flag"},
    "job-cancel": {"state": "text"},
    "job-remove": {"removed": ["text"]},
    "probe": {
        "module": "text?", "board_id": "text?", "l4t": "text?", "cuda": "text?", "python": "text?",
        "numpy": "text?", "onnxruntime": "text?", "ssh_keygen": "text?", "cudla": "text?",
        "cuda_driver": "text?", "compute_capability": "text?", "trtexec": ({"path": "text"}, None),
        "tensorrt": {**_FLAVOURS, "python": _FLAVOURS},
        "dla": {"cores": "count?", "devices": ["text"], "compiler": "text?"},
        "power": {"mode": "text?", "id": "any", "modes": ([{"name": "text", "*": "any"}], None),
                  "clocks": ({"*": {"locked?": "flag", "*": "any"}}, None)},
        "disk_free": "count", "memory": {"available": "count?"}, "user": {"root": "flag"},
        "groups": ["text"], "notes": ["text"],
        "docker": ({"path": "text", "version": "text?", "runtimes": (["text"], None)}, None),
        "fingerprint": _FINGERPRINT, "root": "text",
    },
}  # fmt: skip

_TENSOR: Any = {"digest": "text", "dtype": "text", "shape": ["count"]}
_ENGINE: Any = {
    "key": "text", "kind": "text", "engine": "text", "full": "text?", "bytes": "count",
    "stripped": "flag", "version_compatible": "flag", "lean_embedded": "flag", "refit": "text",
    "dla_core": "count?", "attempts": [{"*": "any"}], "log": "text?", "inspector": "text?",
    "io": [{"name": "text", "mode": "text", "dtype": "text", "shape": ["any"], "*": "any"}],
}  # fmt: skip
#: What jobs make, by its schema.
RESULTS: dict[str, Any] = {
    "edgekit.build.result/1": {
        "engines": [_ENGINE], "tensorrt": "text", "builder": "text", "notes": ["text"],
        "fingerprint": _FINGERPRINT,
        "golden": [{"seed": "count", "lane?": "count?", "outputs": {"*": _TENSOR}}],
    },
    "edgekit.deployment/1": {
        **_DEPLOYMENT, "release": "text", "previous": "text?", "fallback?": "text?",
        "refit?": ({"*": "any"}, None), "changed?": "flag",
    },
}  # fmt: skip

_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,), "count": (int,), "number": (int, float), "flag": (bool,),
}  # fmt: skip
# beyond these arithmetic overflows; nan is not within any
_MOST = {"count": 2**63, "number": 1e100}


def misshapen(value: object, form: Any, where: str = "") -> str:
    """Where a value is not of a form: its name and what it should be; empty where it is."""
    if isinstance(form, tuple):
        return "" if value is None else misshapen(value, form[0], where)
    if isinstance(form, str):
        return "" if _is(value, form) else f"{where}: expected {form.rstrip('?')}"
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{where}: expected a list"
        found = (misshapen(one, form[0], f"{where}[{n}]") for n, one in enumerate(value))
        return next(filter(None, found), "")
    if not isinstance(value, dict):
        return f"{where}: expected an object"
    return _object(value, form, where)


def _object(value: dict[str, Any], form: dict[str, Any], where: str) -> str:
    known = {name.rstrip("?"): name for name in form if name != "*"}
    for name, field in known.items():
        at = f"{where}.{name}" if where else name
        if name in value:
            fault = misshapen(value[name], form[field], at)
        else:
            # what the answer itself lacks is told where it is asked for
            fault = "" if not where or field != name else f"{at}: is not there"
        if fault:
            return fault
    if "*" in form:
        for name in value.keys() - known.keys():
            fault = misshapen(value[name], form["*"], f"{where}.{name[:80]}")
            if fault:
                return fault
    return ""


def _is(value: object, form: str) -> bool:
    if value is None:
        return form.endswith("?") or form == "any"
    form = form.rstrip("?")
    if form == "any":
        return True
    if form != "flag" and isinstance(value, bool):
        return False
    if form in _MOST and isinstance(value, (int, float)):
        return isinstance(value, _TYPES[form]) and -_MOST[form] <= value <= _MOST[form]
    return isinstance(value, _TYPES[form])
