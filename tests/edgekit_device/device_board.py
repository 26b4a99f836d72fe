"""A board in a folder: the real zipapp in processes of their own, spoken to as the host does."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundles.manifest import Bundle, blob_view
from edgekit_device.arrays.npz import write_npz
from edgekit_device.benchmark.settings import BenchSettings
from edgekit_device.commands import make_parser
from edgekit_device.protocol.codec import write
from edgekit_device.store.root import Root
from tests.edgekit_device.forking_loader import run_forked


class Refused(Exception):
    """The board's error: exit status 4 and its JSON."""

    def __init__(self, error: Mapping[str, str]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code, self.message, self.hint = error["code"], error["message"], error["hint"]
        self.where = error["where"]


def run_command(root: Root, words: list[str], stdin: io.BytesIO | None = None) -> Any:
    """What a command answers in this process, as JSON; its options are those that its parser
    makes.
    """
    arguments = make_parser(words[0]).parse_args(words)
    return write(arguments.call(root, arguments, stdin or io.BytesIO()))


def bench_option(**settings: Any) -> str:
    """The option of ``bench`` that says how to measure."""
    return f"--settings={json.dumps(write(BenchSettings(**settings)))}"


@dataclass(frozen=True)
class BoardFolder:
    """A root folder and the loader."""

    root: Path
    loader: Path

    def argv(self, command: str, *options: str) -> list[str]:
        return [sys.executable, str(self.loader), command, "--root", str(self.root), *options]

    def raw(self, command: str, *options: str, stdin: bytes = b"") -> bytes:
        """Runs a command; standard error must stay silent."""
        python, *argv = self.argv(command, *options)
        done = run_forked(python, argv, stdin, {**os.environ, "PYTHONWARNINGS": "error"}, 120)
        assert done.stderr == b"", done.stderr.decode()
        if done.returncode:
            assert done.returncode == 4
            document = json.loads(done.stdout)
            assert set(document) == {"error"}
            assert set(document["error"]) == {"code", "message", "where", "hint"}
            raise Refused(document["error"])
        return done.stdout

    def command(self, command: str, *options: str, stdin: bytes = b"") -> dict[str, Any]:
        answer = self.raw(command, *options, stdin=stdin)
        assert answer.count(b"\n") == 1
        document: dict[str, Any] = json.loads(answer)
        return document

    def trust(self, line: str) -> None:
        self.command("trust", stdin=json.dumps({"lines": [line]}).encode())

    def send(self, blobs: Mapping[str, Any]) -> dict[str, Any]:
        return self.command("receive", stdin=frames(blobs))

    def stage(self, bundle: Bundle, *options: str) -> str:
        answer = self.command("stage", *options, stdin=envelope(bundle))
        return str(answer["release"])

    def install(self, bundle: Bundle, *options: str) -> str:
        """The whole way; returns the release."""
        everything = {**bundle.weights, **bundle.blobs}
        missing = self.command("missing", stdin=json.dumps(list(everything)).encode())["missing"]
        self.send({digest: everything[digest] for digest in missing})
        release = self.stage(bundle, *options)
        self.command("refit", "--app", bundle.name, "--release", release)
        self.command("switch", "--app", bundle.name, "--release", release)
        return release

    def infer(self, app: str, *options: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        answer = self.raw("infer", "--app", app, *options, stdin=write_npz(inputs))
        return dict(np.load(io.BytesIO(answer)))

    def blob(self, digest: str) -> Path:
        return self.root / "blobs" / digest[:2] / digest

    def files(self) -> set[str]:
        """Every file and link below the root."""
        return {
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if path.is_file() or path.is_symlink()
        }


def envelope(bundle: Bundle) -> bytes:
    """What ``stage`` reads."""
    signature = None if bundle.signature is None else bundle.signature.decode()
    document = {"manifest": bundle.manifest_bytes.decode(), "signature": signature}
    return json.dumps(document).encode()


def frames(blobs: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> bytes:
    """What ``receive`` reads."""
    items = blobs.items() if isinstance(blobs, Mapping) else blobs
    parts = []
    for digest, data in items:
        view = blob_view(data)
        parts += [json.dumps({"digest": digest, "bytes": len(view)}).encode(), b"\n", bytes(view)]
    return b"".join([*parts, b"\n"])
