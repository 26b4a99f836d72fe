"""A board's interpreter with everything imported, which forks for each run of its commands.

Run as a program it reads requests, one JSON line each, and answers each with one JSON line:
    {"steps": [[argv, stdin as latin-1 text], ...], "watch": arguments of Watch or null,
     "clock_s": seconds, "before", "check": arguments of ``check`` or null}
    -> {"status": wait status, "answers": [[exit status, stdout], ...], "before", "check": findings}
Steps run in one forked process, as the loader's ``main`` does; ``before`` and ``check`` look at the
board before and after them. What ssh-keygen says of the same files is asked once and remembered.

Three steps are no commands: "send" offers a bundle and sends what the board lacks of it, as a host
does; "deploy" and "resume" do here what those jobs do in processes of their own.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "on_board"))

import durable_ops
import numpy
import onnxruntime

assert numpy
assert onnxruntime


class _Stdio:
    """Standard input or output whose ``buffer`` is bytes in memory."""

    def __init__(self, data: bytes = b"") -> None:
        self.buffer = io.BytesIO(data)

    def write(self, text: str) -> int:
        return self.buffer.write(text.encode())

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


def _remember_keygen(folder: Path) -> None:
    """Asks ssh-keygen once for the same question: arguments, files that they name, input."""
    really = subprocess.run

    def run(argv: list[str], **options: Any) -> Any:
        if not (isinstance(argv, list) and argv[0].endswith("ssh-keygen") and "-Y" in argv):
            return really(argv, **options)
        facts: list[Any] = [options.get("input")]
        for word in argv[1:]:
            path = Path(word)
            facts.append(path.read_bytes() if "/" in word and path.is_file() else word)
        retained = folder / hashlib.sha256(pickle.dumps(facts)).hexdigest()
        if not retained.exists():
            done = really(argv, **options)
            temporary = retained.with_suffix(f".{os.getpid()}")
            temporary.write_bytes(pickle.dumps((done.returncode, done.stdout, done.stderr)))
            os.replace(temporary, retained)
        status, out, err = pickle.loads(retained.read_bytes())
        return subprocess.CompletedProcess(argv, status, out, err)

    subprocess.run = run  # type: ignore[assignment]


def _command(argv: list[str], data: bytes) -> tuple[int, str]:
    from edgekit_device.__main__ import main
    from edgekit_device.errors import DeviceError

    if argv[0] in _OWN:
        try:
            return 0, json.dumps(_OWN[argv[0]](Path(argv[1]), json.loads(data or b"null")))
        except DeviceError as error:
            return 4, json.dumps(error.to_json())
    out = _Stdio()
    sys.stdin, old_out = _Stdio(data), sys.stdout  # type: ignore[assignment]
    sys.stdout = out  # type: ignore[assignment]
    try:
        status = main(argv)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    finally:
        sys.stdout = old_out
    return status, out.buffer.getvalue().decode("latin-1")


def _send(root: Path, bundle: Any) -> Any:
    from edgekit_device.errors import DeviceError

    envelope = {name: bundle[name] for name in ("manifest", "signature")}
    missing: list[Any] = [None]
    # what was kept of a blob may be wrong after a power cut: it is thrown away and sent anew, once
    for command in ("offer", "receive", "offer", "receive"):
        data = json.dumps(envelope).encode() if command == "offer" else _frames(bundle, missing)
        if not missing:
            break
        status, out = _command([command, f"--root={root}"], data)
        answer = json.loads(out)
        if status and answer["error"]["code"] != "blob.digest-mismatch":
            raise DeviceError(**answer["error"])
        if command == "receive" and not status:
            break
        missing = answer.get("missing", missing)
    return {"missing": missing}


def _frames(bundle: Any, missing: list[Any]) -> bytes:
    parts = []
    for digest, retained in missing:
        data = bundle["blobs"][digest].encode("latin-1")
        frame = {"digest": digest, "bytes": len(data), "from": retained}
        parts += [json.dumps(frame).encode(), b"\n", data[retained:]]
    return b"".join([*parts, b"\n"])


def _deploy(root: Path, request: Any) -> Any:
    from edgekit_device.deployment.job import deploy
    from edgekit_device.deployment.request import read_request
    from edgekit_device.protocol.codec import write
    from edgekit_device.store.root import Root

    return write(deploy(Root(root), read_request(request)))


def _resume(root: Path, nothing: None) -> Any:
    from edgekit_device.protocol.codec import write
    from edgekit_device.release.journal import read_journal
    from edgekit_device.store.root import Root

    done = []
    for app in Root(root).apps():
        journal = read_journal(app)
        if journal is not None and journal.live:
            facts = journal.facts
            names = ("digest", "policy", "operator")
            request = {n: write(getattr(facts, n)) for n in names}
            request.update(app=app.name, resume=facts.id)
            done.append(_deploy(root, request))
    return done


_OWN: dict[str, Any] = {"send": _send, "deploy": _deploy, "resume": _resume}


def _child(request: dict[str, Any], answer: Path) -> None:
    if request.get("clock_s"):
        durable_ops.shift_clock(request["clock_s"])
    watch = durable_ops.Watch(**request["watch"]) if request.get("watch") else None
    if watch:
        durable_ops.install(watch)
    before = _look(request.get("before"))
    answers: list[Any] = []
    for argv, data in request.get("steps", []):
        answers.append(_command(argv, data.encode("latin-1")))
        if answers[-1][0] and argv[0] != "resume":
            break
    if watch:  # one more moment: all has been done
        watch.step("end", watch.root, lambda: None, lambda _: [])
    after = _look(request.get("check"))
    answer.write_text(json.dumps({"answers": answers, "before": before, "check": after}))


def _look(requested: dict[str, Any] | None) -> dict[str, Any] | None:
    from tests.faults.board_check import check

    try:
        return check(**requested) if requested else None
    except Exception:
        return {"problems": [traceback.format_exc()]}


def _serve() -> None:
    import edgekit_device.board.identity
    import edgekit_device.deployment.health
    import edgekit_device.deployment.job
    import edgekit_device.deployment.states
    import edgekit_device.release.changed
    import edgekit_device.release.collect
    import edgekit_device.release.offer
    import edgekit_device.release.requirements
    import edgekit_device.runtime.golden
    import edgekit_device.runtime.model
    import edgekit_device.runtime.reference
    import edgekit_device.runtime.refit
    import edgekit_device.store.transfer  # noqa: F401
    from edgekit_device import __main__ as program
    from tests.faults import board_check  # noqa: F401

    parser = program.make_parser()
    program.make_parser = lambda command=None: parser
    with tempfile.TemporaryDirectory() as name:
        _remember_keygen(Path(name))
        answer = Path(name, "answer")
        gc.freeze()  # or each fork's collections copy the pages of all that was imported
        for line in sys.stdin:
            answer.unlink(missing_ok=True)
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    with open(os.devnull) as nothing:
                        os.dup2(nothing.fileno(), 0)
                    os.dup2(2, 1)
                    _child(json.loads(line), answer)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            _, status = os.waitpid(pid, 0)
            reported: dict[str, Any] = {"answers": None, "before": None, "check": None}
            with contextlib.suppress(FileNotFoundError, ValueError):
                reported = json.loads(answer.read_text())
            print(json.dumps({"status": status, **reported}), flush=True)


if __name__ == "__main__":
    _serve()
