"""The seams of a board: its folder, and what passes between the host and its Python."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["WORDS", "Names", "changes", "listing", "recording_python", "signing_key", "transcript"]

# For ``golden(words=)``: times, numbers of this machine and of chance.
WORDS = {
    **dict.fromkeys(
        ("at", "queued_at", "started_at", "ended_at", "state_at", "staged_at", "wall", "t_s"),
        "<date>",
    ),
    **dict.fromkeys(
        ("bytes_sent", "used_bytes", "total_bytes", "starts_by", "sampler_percent"),
        "<number>",
    ),
    **dict.fromkeys(
        (
            "operator",
            "nonce",
            "port",
            "python",
            "numpy",
            "onnxruntime",
            "runtime_version",
            "cpu",
            "machine",
            "ssh_keygen",
            "version",
            "environment",
            "signature",
            "config",
            "cuda",
            "compute_capability",
        ),
        "<fact>",
    ),
    "median_ms": "<measured>",
    "slowest_ms": "<measured>",
    "worst": "<in the order of what was measured>",
}


# --- what passes

# Stands between sshd and the loader, and copies stdin and stdout: a folder an exchange.
_RECORDER = """\
import json, os, subprocess, sys, threading, time
folder = os.path.join(sys.argv[1], "%020d-%d" % (time.monotonic_ns(), os.getpid()))
os.mkdir(folder)
with open(os.path.join(folder, "argv.json"), "w") as file:
    json.dump(sys.argv[3:], file)
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def copy(source, target, name):
    with open(os.path.join(folder, name), "wb", 0) as file:
        while data := os.read(source, 65536):
            file.write(data)
            try:
                while data:
                    data = data[os.write(target, data):]
            except BrokenPipeError:
                return

def feed():
    copy(0, child.stdin.fileno(), "in")
    child.stdin.close()

threading.Thread(target=feed, daemon=True).start()
copy(child.stdout.fileno(), 1, "out")
status = child.wait()
with open(os.path.join(folder, "status"), "w") as file:
    file.write(str(status))
os._exit(status if status >= 0 else 128 - status)
"""


def recording_python(folder: Path, python: str | Path = sys.executable) -> Path:
    """Writes a ``python3`` for a board that runs ``python`` and records what passes."""
    (folder / "exchanges").mkdir(parents=True)
    (folder / "recorder.py").write_text(_RECORDER)
    script = folder / "python3"
    recorder = f"{sys.executable} -I -S {folder}/recorder.py {folder}/exchanges"
    script.write_text(f'#!/bin/sh\nexec {recorder} {python} "$@"\n')
    script.chmod(0o755)
    return script


def transcript(python: Path) -> list[dict[str, Any]]:
    """Returns what passed since the last call: an element a command, without the blobs' bytes.

    The many answers of one job are one.
    """
    found: list[dict[str, Any]] = []
    for folder in sorted((python.parent / "exchanges").iterdir()):
        argv = json.loads((folder / "argv.json").read_text())
        exchanges = _exchanges(argv, (folder / "in").read_bytes(), (folder / "out").read_bytes())
        for exchange in exchanges:
            last = found[-1] if found else {"command": ""}
            if exchange["command"] == last["command"] == "job-watch":
                events = last["answered"][0]["events"]
                last["answered"] = exchange["answered"]
                last["answered"][0]["events"] = [*events, *last["answered"][0]["events"]]
            else:
                found.append(exchange)
        shutil.rmtree(folder)
    return found


def _exchanges(argv: list[str], sent: bytes, answered: bytes) -> Iterator[dict[str, Any]]:
    """What was said to an agent and by it (``edgekit_device.agent``): its placing, its commands."""
    head, _, answered = answered.partition(b'{"agent": 1}\n')
    lacks = b'{"lacks": ' in head
    yield {
        "command": "place",
        "options": argv[3:5],
        "sent": ["the loader"] if lacks else [],
        "answered": [line for line in _stream(head) if "lacks" not in line],
    }
    commands: dict[int, dict[str, Any]] = {}
    streams: dict[tuple[str, int], bytes] = {}
    for line, data in [*_parts(sent[12 + int(sent[:12]) :] if lacks else sent), *_parts(answered)]:
        name, number = next(iter(line.items()))
        if name == "run":
            commands[number] = line
        elif name == "status":
            commands[number]["status"] = line["code"]
        else:
            streams[name, number] = streams.get((name, number), b"") + data
    for number, line in commands.items():
        command, *options = line["argv"]
        yield {
            "command": command,
            # how often a job is asked for news depends on the time
            "options": [one for one in options if not one.startswith("--after=")],
            "sent": _stream(streams.get(("in", number), b"")),
            "answered": _stream(streams.get(("out", number), b"")),
            "status": line["status"],
        }


def _parts(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The agent's lines, each with the bytes behind it."""
    while data:
        line, _, data = data.partition(b"\n")
        document = json.loads(line)
        size = document.get("bytes", 0) if "took" not in document else 0
        yield document, data[:size]
        data = data[size:]


def _stream(data: bytes) -> list[Any]:
    """The documents; of the bytes that follow one, or that are none, how many there are."""
    found: list[Any] = []
    while data:
        line, _, rest = data.partition(b"\n")
        try:
            document = json.loads(line) if line else {}
        except ValueError:
            return [*found, {"bulk": len(data)}]
        if isinstance(document, dict):
            if {"digest", "bytes"} == document.keys():
                rest = rest[document["bytes"] :]
            if "manifest" in document:  # which is a file of the board, too
                packed = base64.b64decode(document["manifest"]["deflated"])
                document["manifest"] = hashlib.sha256(zlib.decompress(packed)).hexdigest()
        found.append(document)
        data = rest
    return found


# --- the board's folder


def listing(root: Path) -> dict[str, Any]:
    """Returns the "files" by path, the "blobs" and the JSON "documents" among the files.

    The loader that was unpacked there, and what Python compiled of it, is left out. Digests and
    sizes are those of files whose content depends on no clock and no path.
    """
    files: dict[str, str] = {}
    blobs: dict[str, str] = {}
    documents: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        if path.parent.name == "blobs" or path.is_relative_to(root / "bin" / "run"):
            continue
        name, mode = str(path.relative_to(root)), f"{stat.S_IMODE(path.lstat().st_mode):o}"
        if path.is_symlink():
            files[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            files[name] = f"{mode} folder"
        elif path.suffix in (".json", ".jsonl"):
            files[name] = mode
            lines = path.read_text().splitlines()
            documents[name] = [json.loads(line) for line in lines]
        elif path.suffix in (".pyz", ".sig"):
            files[name] = mode
        else:
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            if name == f"blobs/{digest[:2]}/{digest}":
                blobs[digest] = f"{mode}, {len(data)} bytes"
            else:
                files[name] = f"{mode}, {len(data)} bytes, {digest}"
    return {"files": files, "blobs": blobs, "documents": documents}


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Returns ``after`` with those documents alone that are new or were changed."""
    old = before.get("documents", {})
    new = {path: one for path, one in after["documents"].items() if old.get(path) != one}
    return {**after, "documents": new}


# --- what is no behaviour

_MEASURED = ("cpu-measured", "board-measured")
_AS_REQUESTED = ("settings", "limits", "limit", "threshold", "confidence", "predicted", "tensorrt")
# measured numbers, and what comes as often as something was measured
_NUMBERS = ("latency_ms", "memory", "nodes", "events", "pipelined_events", "copies")
_MANY = ("unbooked", "left_s")
_DECIMAL = re.compile(r"(?<![\d.])\d[\d,]*\.\d+(?!\.?\d)")
_TEXTS = (
    (re.compile(r"median \d[\d,.]* (ms|µs|us|s)\b"), "median <measured>"),
    (re.compile(r"process \d+ on \S+"), "<process>"),
    (re.compile(r"enable-linger \S+"), "enable-linger <user>"),
    (re.compile(re.escape(sys.executable)), "<python>"),
)
# objects of which one key tells that others are facts of this machine, or sizes of what has paths
_FACTS = (
    ("groups", ("user", "groups")),
    ("free_bytes", ("free_bytes", "memory_bytes")),
    ("stripped_bytes", ("bytes", "stripped_bytes")),
    ("packed", ("bytes", "packed")),
    ("measured_layers", ("events",)),
    ("uptime_s", ("uptime_s", "workers")),
    ("joined", ("state",)),  # a job may run before the answer is written
)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"<(bundle \d+|log)>")
_ID = re.compile(r"\b[0-9a-f]{16}\b")


class Names:
    """Makes documents of boards comparable.

    What is chance or depends on a path gets a name (ids, in the order in which they appear; bundles
    and the loader), measured numbers are words, and what is listed by digest is sorted without it.
    """

    def __init__(self) -> None:
        self._words: dict[re.Pattern[str], str] = {}
        self._starts: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._logs: set[str] = set()

    def digest(self, digest: str, word: str) -> None:
        """Takes a word for a digest, of which 12 digits are enough; {} in it is a number."""
        if digest[:12] not in self._starts:
            number = sum(one == word for one in self._starts.values()) + 1
            self._starts[digest[:12]] = word
            ending = "(?:[0-9a-f]{4}|[0-9a-f]{52})?"
            self._words[re.compile(rf"\b{digest[:12]}{ending}\b")] = word.format(number)

    def logs(self, value: Any) -> None:
        """Takes the digests of the builder's logs, which say how long it took."""
        if isinstance(value, list):
            for one in value:
                self.logs(one)
        elif isinstance(value, dict):
            for key, one in value.items():
                if key == "log" and isinstance(one, str) and _DIGEST.fullmatch(one):
                    self.digest(one, "<log>")
                    self._logs.add(one)
                self.logs(one)

    def __call__(self, value: Any, *, exact: bool = False) -> Any:
        """Returns the comparable document; ``exact`` where the measured numbers are given ones."""
        return self._plain(value, None if exact else False)

    def _plain(self, value: Any, measured: bool | None) -> Any:
        if isinstance(value, dict):
            return self._object(value, measured)
        if isinstance(value, list):
            if measured and value and all(isinstance(one, float) for one in value):
                return ["<measured>"]
            found = [self._plain(one, measured) for one in value if not _by_load(one)]
            return sorted(found, key=_place) if found and all(map(_is_digest, found)) else found
        if measured and isinstance(value, float):
            return "<measured>"
        return self._text(value, bool(measured)) if isinstance(value, str) else value

    def _object(self, value: dict[str, Any], measured: bool | None) -> Any:
        if value.get("schema") == "edgekit.probe/1":
            return {"schema": value["schema"], "facts": sorted(value)}
        if value and all(map(_DIGEST.fullmatch, value)):
            return self._by_digest(value)
        value = self._without_facts(value)
        if measured is not None and value.get("schema") == "edgekit.compare/1":
            measured = True
        elif measured is not None and "clock" in value:
            measured = value["clock"] in _MEASURED
        found: dict[str, Any] = {}
        for key, one in value.items():
            if key in _MANY or (measured and key in _NUMBERS):
                plain = _numbers(one)
            else:
                plain = self._plain(one, False if measured and key in _AS_REQUESTED else measured)
            if key == "note_groups":
                plain = {group: notes for group, notes in plain.items() if notes}
            found[self._text(key, False)] = plain
        return found

    def _without_facts(self, value: dict[str, Any]) -> dict[str, Any]:
        for key, facts in _FACTS:
            if key in value:
                value = {**value, **dict.fromkeys(value.keys() & facts, "<fact>")}
        if value.get("digest") in self._logs:
            value = {**value, "bytes": "<number>"}
        if value.get("schema") == "edgekit.doctor/1":
            checks = [[one["id"], one["what"]] for one in value["checks"]]
            value = {**value, "checks": checks, "can": sorted(value["can"])}
        if value.get("schema") == "edgekit.selftest/1":
            named = ("id", "what", "expected")
            items = [{key: one[key] for key in named} for one in value["items"]]
            value = {**value, "items": items, "counts": "<number>"}
        if value.get("schema") == "edgekit.trace-summary/1":
            value = {**value, "events": _numbers(value["events"])}
        return value

    def _by_digest(self, value: dict[str, Any]) -> dict[str, str]:
        """What was found under each digest, and the digest; digests differ between machines."""
        found: dict[str, str] = {}
        for digest, one in sorted(value.items()):
            text = one if isinstance(one, str) else json.dumps(one, sort_keys=True)
            number = 1
            while f"{text} ({number})" in found:
                number += 1
            found[f"{text} ({number})"] = digest
        return found

    def _text(self, text: str, measured: bool) -> str:
        for pattern, word in self._words.items():
            text = pattern.sub(word, text)
        for pattern, word in _TEXTS:
            text = pattern.sub(word, text)
        text = _ID.sub(lambda found: self._id(found[0]), text)
        return _DECIMAL.sub("<measured>", text) if measured else text

    def _id(self, id: str) -> str:
        return self._ids.setdefault(id, f"<id {len(self._ids) + 1}>")


def _numbers(value: Any) -> Any:
    """Of an object the keys, and of anything else that it is there."""
    if isinstance(value, dict):
        return {name: _numbers(number) for name, number in value.items()}
    return "<measured>" if value is not None else None


def _by_load(value: Any) -> bool:
    """Whether it is a note that depends on what else the machine does."""
    return isinstance(value, str) and value.startswith("layer times come from a few separate runs")


def _place(value: Any) -> tuple[bool, str]:
    """Where a digest is listed: words last, since digests of engines differ between machines."""
    return bool(_WORD.search(str(value))), str(value)


def _is_digest(value: Any) -> bool:
    text = value[0] if isinstance(value, list) and value else value
    return isinstance(text, str) and bool(_DIGEST.fullmatch(text) or _WORD.fullmatch(text))


def signing_key(folder: Path, name: str = "key") -> Path:
    """Writes an Ed25519 key, always the same one of a name, and its public half."""
    seed = "edgekit's contracts" if name == "key" else name
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(seed.encode()).digest())
    form, path = serialization.PublicFormat.OpenSSH, folder / name
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, form)
    path.with_suffix(".pub").write_bytes(public + b" contracts\n")
    return path
