"""Runs comparisons read from standard input, with NVIDIA's module in this process.

Usage: _parser_child.py WHEELS: reads a task a line ("export NAME", "flow NAME", "node MODULE",
"build NAME fp16", "range NAME int8", "questions") and answers each with a line of JSON. A crash of
NVIDIA's library ends this process alone.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import _parser_models as models
from _parser_builds import FLAGS, build, build_range, type_model
from _parser_network import Difference, compare, parse
from _parser_questions import ask_all
from _parser_wheels import import_module_from

from edgekit.errors import EdgekitError
from edgekit.network.model import Model
from edgekit.network.writing import save
from edgekit_device.build.attempt import BuilderLog
from tests.trt_double.double import module as module_of

# the double's release that is nearest
_DOUBLE = "11.4.0"

# of the processor, for one task: a process that takes more is ended
_SECONDS = 120


class _Tasks:
    def __init__(self, wheels: Path) -> None:
        self.trt = import_module_from(wheels)
        self._log: BuilderLog | None = None

    @property
    def log(self) -> BuilderLog:
        """Everybody's: TensorRT takes the first logger of a process for all."""
        self._log = self._log or BuilderLog(self.trt, lambda line: None)
        return self._log

    def run(self, task: str) -> tuple[list[Difference], Counter[str]]:
        kind, _, name = task.partition(" ")
        if kind == "export":
            return self._compare_model(name, models.export_model(name))
        if kind == "flow":
            return self._compare_model(f"flow_{name}", models.flow_model(name))
        if kind == "node":
            found: list[Difference] = []
            counts: Counter[str] = Counter()
            for test, model in models.node_tests(name):
                print(json.dumps({"at": f"{task}: {test}"}), file=_OUT, flush=True)
                differences, more = self._compare_model(test, model)
                found += differences
                counts += more
            return found, counts
        if kind == "build":
            export, _, precision = name.partition(" ")
            made = type_model(models.export_model(export), precision)
            found, counts = self._compare_model(f"{name}", made)
            with tempfile.TemporaryDirectory() as folder:
                found += build(self.trt, self.log, name, made, Path(folder))
            return found, counts + Counter(builds=len(FLAGS))
        if kind == "range":
            export, _, precision = name.partition(" ")
            proto = models.export_proto(export)
            with tempfile.TemporaryDirectory() as folder:
                found = build_range(self.trt, self.log, export, proto, precision, Path(folder))
            return found, Counter(builds=1)
        if kind == "questions":
            return _compare_answers(self.trt)
        raise ValueError(task)

    def _compare_model(self, name: str, model: Model) -> tuple[list[Difference], Counter[str]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            save(model, path)
            parsed = parse(self.trt, self.log.logger, path)
        try:
            return compare(self.trt, name, model, parsed)
        except EdgekitError as error:
            theirs = "refused" if parsed.errors else "accepted"
            said = Difference("accepted", "", f"not loaded: {error.code}", theirs, name)
            return [said] if theirs == "accepted" else [], Counter(models=1)


def _compare_answers(trt: Any) -> tuple[list[Difference], Counter[str]]:
    double = module_of(_DOUBLE)
    # TensorRT for RTX has no DLA
    double._double.settings.dla_cores = 0
    theirs, ours = ask_all(trt), ask_all(double)
    found = [
        Difference("answers", name, json.dumps(ours[name]), json.dumps(answer), _DOUBLE)
        for name, answer in theirs.items()
        if answer != ours[name]
    ]
    return found, Counter(questions=len(theirs))


# output of libraries belongs to no answer
_OUT = os.fdopen(os.dup(1), "w")


def main() -> None:
    """Answers every task."""
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    tasks = _Tasks(Path(sys.argv[1]))
    print(json.dumps({"version": tasks.trt.__version__}), file=_OUT, flush=True)
    for line in sys.stdin:
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + _SECONDS, resource.RLIM_INFINITY))
        answer: dict[str, Any] = {"failed": ""}
        try:
            found, counts = tasks.run(line.strip())
            answer = {
                "differences": [difference.to_json() for difference in found],
                "counts": counts,
            }
        except Exception:
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), file=_OUT, flush=True)


if __name__ == "__main__":
    main()
