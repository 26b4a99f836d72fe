"""A board whose agent says what a test gives it, for what a real loader never says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from edgekit.deployment.transport import Buffer, Completed

__all__ = ["ScriptedBoard"]

_PLACE = {"root": "/r", "path": "/r/loader", "user": "", "groups": []}


class ScriptedBoard:
    """A transport to an agent; ``answer`` returns what each command prints on stdout.

    Args:
        answer: Gets the command with its options.
    """

    def __init__(self, answer: Callable[[list[str]], bytes]) -> None:
        self._answer = answer

    def run(
        self, argv: Any, *, stdin: Iterable[Buffer], on_output: Any, **options: Any
    ) -> Completed:
        on_output(json.dumps(_PLACE).encode() + b'\n{"agent": 1}\n')
        left = 0
        for part in stdin:
            if left:
                left -= len(part)
                continue
            line = json.loads(bytes(part) or b"{}")
            left = line.get("bytes", 0)
            if "run" in line:
                data = self._answer(line["argv"])
                if data:
                    head = {"out": line["run"], "bytes": len(data)}
                    on_output(json.dumps(head).encode() + b"\n" + data)
                on_output(json.dumps({"status": line["run"], "code": 0}).encode() + b"\n")
        on_output(b"")
        return Completed(0, b"", b"")

    def close(self) -> None:
        pass
