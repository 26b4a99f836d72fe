"""An answer of each of the board's commands, with all that one can have in it."""

from __future__ import annotations

from typing import Any

from edgekit_device.protocol.codec import write
from edgekit_device.release.policy import Policy

__all__ = ["SAMPLES"]

_DIGEST, _RELEASE, _AT = "a" * 64, "000001-aaaaaaaaaaaa", "2026-01-02T03:04:05Z"
_ERROR = {"code": "x.y", "message": "m", "where": "w", "hint": "h"}
_BACK = {"release": _RELEASE, "at": _AT, "reason": "worse"}
_VERSIONS = {"full": "10.3.0", "lean": None, "dispatch": None}
_TENSOR = {
    "name": "x",
    "mode": "input",
    "dtype": "float32",
    "shape": [1, 3],
    "format": "LINEAR",
    "strides": [12, 4],
    "scale": 0.5,
}
_HELLO = {
    "schema": "edgekit.device/1",
    "version": "1",
    "loader": _DIGEST,
    "python": "3.8.10",
    "machine": "aarch64",
    "numpy": "1.19",
    "onnxruntime": "1.12.0",
    "ssh_keygen": "8.2p1",
    "backends": ["reference"],
    "root": "/r",
    "free_bytes": 1,
    "module": "m",
    "board_id": "b",
    "l4t": "36.4.3",
    "tensorrt": "10.3.0",
    "memory_bytes": 1,
}
_SOFTWARE = ("version", "loader", "python", "machine", "numpy", "onnxruntime", "backends", "root")
_HISTORY = {
    "schema": "edgekit.rollback/1",
    "id": "i",
    "app": "net",
    "state": "rolled-back",
    "release": _RELEASE,
    "previous": _RELEASE,
    "started_at": _AT,
    "state_at": _AT,
    "error": _ERROR,
}
_ENTRY = {
    **_HISTORY,
    "schema": "edgekit.deployment/1",
    "state": "committed",
    "fallback": _RELEASE,
    "digest": _DIGEST,
    "known": True,
    "operator": "ada",
    "trust_unsigned": False,
    "on_purpose": "why",
    "job": "j",
    "attempts": 1,
    "issued": {"signer": "ada", "at": 1, "counter": 1},
}
_HEALTH = {
    "schema": "edgekit.health/1",
    "release": _RELEASE,
    "digest": _DIGEST,
    "at": _AT,
    "backend": "reference",
    "clock": "cpu-measured",
    "fingerprint": {"machine": "aarch64"},
    "golden": {"cases": 1, "bit_equal": True},
    "notes": ["n"],
    "accuracy": {
        "metric": "cosine",
        "value": 1.0,
        "min": 0.9,
        "samples": 3,
        "source": "synthetic",
        "synthetic": True,
        "cosine": 1.0,
        "cosine_min": 1.0,
        "snr_db": None,
        "exact": True,
        "max_abs": 0.0,
        "top1_agreement": 1.0,
        "top1_accuracy": 0.5,
        "collapsed": [{"output": "y", "channels": [[0, 3]], "cosine": 0.1}],
    },
    "latency_ms": {"p50": 1.5, "p99": 2.5, "mean": 1.6, "frames": 10, "rounds": 1},
}
_DEPLOYMENT = {
    **_ENTRY,
    "policy": write(Policy()),
    "health": _HEALTH,
    "steps": [{"state": "testing", "at": _AT, "seconds": 0.5}],
}
_APP = {
    "current": _RELEASE,
    "previous": None,
    "taken_back": _BACK,
    "releases": [
        {
            "id": _RELEASE,
            "digest": _DIGEST,
            "backend": "reference",
            "signer": "ada",
            "staged_at": _AT,
            "ready": True,
            "taken_back": _BACK,
        }
    ],
}
_LAST = {**_ERROR, "at": _AT}
_SERVING = {
    "schema": "edgekit.serving/1",
    "app": "net",
    "release": _RELEASE,
    "digest": _DIGEST,
    "pid": 7,
    "workers": [8],
    "socket": "/s",
    "uptime_s": 1.5,
    "requests": 2,
    "errors": 1,
    "refused": 0,
    "restarts": 0,
    "running": 0,
    "queue": 0,
    "queue_most": 1,
    "clients": 1,
    "latency_ms": {"p50": 1.5, "p99": 2.5, "of_last": 2},
    "loading": None,
    "last_error": _LAST,
    "stopping": False,
}
_STATUS = {
    **_APP,
    "deployment": {**_DEPLOYMENT, "alive": True},
    "history": [_HISTORY, _ENTRY],
    "error": _ERROR,
    "refused": [{"release": _RELEASE, "code": "c", "message": "m"}],
    "serving": _SERVING,
    "changed": {"release": _RELEASE, "changes": [{"what": "l4t", "from": "35", "to": "36"}]},
}
_ENGINE = {
    "key": "lane0",
    "kind": "plan",
    "engine": _DIGEST,
    "full": _DIGEST,
    "bytes": 1,
    "full_bytes": 1,
    "tensorrt": "10.3.0",
    "flags": ["FP16"],
    "stripped": True,
    "version_compatible": True,
    "lean_embedded": False,
    "refit": "identical",
    "dla_core": 0,
    "weights": {"w": {"dtype": "float32", "shape": [3], "count": 3}},
    "io": [_TENSOR],
    "can_run_on_dla": {"conv": True},
    "unmapped": ["u"],
    "layers": [{"name": "conv", "type": "DLA", "device": "DLA"}],
    "reformats": ["r"],
    "inspector": _DIGEST,
    "log": _DIGEST,
    "timing_cache": {"after": 1},
    "attempt": 0,
    "seconds": 1.5,
    "attempts": [{"flags": [], "ok": True, "seconds": 1.5, "error": None, "code": None}],
}
_BUILD = {
    "schema": "edgekit.build.result/1",
    "request": _DIGEST,
    "fingerprint": {"machine": "aarch64"},
    "tensorrt": "10.3.0",
    "engines": [_ENGINE],
    "notes": ["n"],
    "golden": [
        {
            "seed": 7,
            "lane": 0,
            "outputs": {"y": {"digest": _DIGEST, "dtype": "float32", "shape": [1, 10]}},
        }
    ],
}
_PROBE = {
    "schema": "edgekit.probe/1", "module": "m", "board_id": "b", "l4t": "36.4.3", "jetpack": None,
    "cuda": "12.6", "cuda_driver": "12.6", "compute_capability": "8.7", "machine": "aarch64",
    "python": "3.10", "numpy": "1.26", "onnxruntime": None, "ssh_keygen": "8.9p1", "root": "/r",
    "tensorrt": {**_VERSIONS, "python": _VERSIONS,
                 "libraries": {"full": {"path": "/l", "version": "10.3.0"}}},
    "trtexec": {"path": "/t", "version": "10.3.0"},
    "dla": {"cores": 2, "devices": ["/d"], "compiler": "/c", "compiler_version": "3.14"},
    "cudla": "/c", "cudla_facts": {"path": "/c", "version": None, "devices": 2},
    "nvrtc": None, "nsys": None,
    "power": {"mode": "MAXN", "id": 0, "modes": [{"id": 0, "name": "MAXN"}],
              "clocks": {"gpu": {"min": 1, "max": 2, "current": 1, "locked": False,
                                 "online": True}}},
    "disk_free": 1, "memory": {"total": 2, "available": 1}, "user": {"uid": 1000, "root": False},
    "groups": ["video"], "docker": {"path": "/d", "version": "27", "runtimes": ["nvidia"]},
    "notes": ["n"], "fingerprint": {"tensorrt": "10.3.0"},
}  # fmt: skip
_JOB = "0123456789abcdef"
_REMOVED = {"removed": [_RELEASE]}
_SERVE = {"app": "net", "serving": _SERVING, "taken_back": _BACK}

#: By command; a second answer of one has a word behind it.
SAMPLES: dict[str, dict[str, Any]] = {
    "place": {"root": "/r", "path": "/r/l", "user": "1:1", "groups": [1]},
    "hello": _HELLO,
    "trust": {
        "added": 1, "removed": 0, "revoked": 0, "signers": ["ada"],
        "keys": [{"identity": "ada", "kind": "ssh-ed25519", "fingerprint": "SHA256:x",
                  "authority": False, "valid_after": "20260101", "valid_before": None}],
        "revocations": {"kind": "list", "fingerprints": ["SHA256:y"]},
        "refused": [{"release": _RELEASE, "code": "c", "message": "m", "app": "net",
                     "role": "current"}],
    },
    "missing": {"missing": [_DIGEST]},
    "offer": {
        "known": True, "digest": _DIGEST, "app": "net", "signer": "ada", "missing": [[_DIGEST, 0]],
        "serving": _RELEASE, "deployment": _DEPLOYMENT, "taken_back": _BACK, "hello": _HELLO,
    },
    "offer unknown": {"known": False, "digest": _DIGEST},
    "rollback": {"app": "net", "current": _RELEASE, "previous": None, "from": _RELEASE,
                 "taken_back": _BACK},
    "releases": {"apps": {"net": _APP}},
    "remove": _REMOVED,
    "status": {
        "schema": "edgekit.board-status/1", "apps": {"net": _STATUS},
        "board": {key: _HELLO[key] for key in _SOFTWARE},
        "store": {"blobs": 1, "bytes": 1, "partial_bytes": 0}, "free_bytes": 1, "power": "p",
    },
    "resume": {"resumed": [{"app": "net", "job": _JOB, "state": "testing"}],
               "failed": [{"app": "net", "error": _ERROR}], "power": None},
    "serve": _SERVE,
    "serve-status": _SERVE,
    "serve-stop": {"app": "net", "stopped": True},
    "setup": {"sudoers": "s", "file": "/f", "groups": ["video"], "script": "/s",
              "state": "by-hand", "text": "t"},
    "job-start": {"job": _JOB, "state": "running", "reused": False, "joined": True},
    "job-list": {"jobs": [{
        "job": _JOB, "kind": "build", "name": "net", "state": "failed", "queued_at": 1.5,
        "started_at": 2.5, "ended_at": 3.5, "phase": "p", "done": 1, "total": 2, "error": _ERROR,
    }]},
    "job-watch": {
        "job": _JOB, "state": "done", "next": 1, "ended": True, "error": _ERROR,
        "events": [{"n": 1, "time": 1.5, "phase": "p", "done": 1, "total": 1, "text": "t"}],
    },
    "job-cancel": {"job": _JOB, "state": "cancelled"},
    "job-remove": {"removed": [_JOB]},
    "job-result build": _BUILD,
    "job-result deploy": {**_DEPLOYMENT, "refit": {"weights": 1}, "changed": True},
    "probe": _PROBE,
}  # fmt: skip
