"""Seeded faults: puts one wrong line at a time into a copy of the code and asks whether tests fail.

Usage: scripts/seed_faults.py [--jobs N] [--only SUBJECT] [--all[=full|N]] [--record] [--check]

tests/contracts/seeded_faults.yaml lists the faults, places where a wrong answer hurts: a limit of
the DLA, the order of two checks, a unit. Each names the snippet to replace, which is exactly once
in all product files (so it survives when a module moves), and the tests that see the fault. The
exit status is 1 if a fault that is recorded as killed survives or no longer applies. With --all
only those recorded as killed are tried, of the eighths that tests/tries.py chooses.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.tries import OPTION, share_of  # noqa: E402

FAULTS = ROOT / "tests" / "contracts" / "seeded_faults.yaml"
PRODUCT = ("edgekit", "edgekit_device", "dla", "targets", "trt")
PACKAGES = ("edgekit", "edgekit_device")
# loaded once, so that each run of a few tests begins at once
LIBRARIES = ("numpy", "onnx", "onnxruntime", "pydantic", "rich")
PYTEST = (
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "--hypothesis-profile=faults",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
TIMEOUT = 300.0
PASSED, FAILED = 0, (1, 2, 3)  # pytest's exit statuses; others: it ran no test


@dataclass(frozen=True)
class Fault:
    id: str
    subject: str
    find: str
    replace: str
    tests: str  # arguments of pytest
    killed: bool
    why: str = ""  # of a survivor


@dataclass(frozen=True)
class Outcome:
    word: str  # killed, survived, does not apply, tests fail without it, no test ran
    detail: str = ""
    seconds: float = 0.0


def read_faults() -> list[Fault]:
    faults = [Fault(**row) for row in yaml.safe_load(FAULTS.read_text())["faults"]]
    twice = [name for name, count in Counter(f.id for f in faults).items() if count > 1]
    if twice:
        raise SystemExit(f"{FAULTS}: listed twice: {', '.join(twice)}")
    return faults


def product_texts(root: Path) -> dict[str, str]:
    texts = {}
    for folder in PRODUCT:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                try:
                    texts[str(path.relative_to(root))] = path.read_text()
                except UnicodeDecodeError:
                    continue
    return texts


def apply_fault(fault: Fault, texts: dict[str, str]) -> tuple[str, str]:
    """Returns the file of a fault and its text with the fault in it, or ("", why there is none)."""
    found = {name: text.count(fault.find) for name, text in texts.items() if fault.find in text}
    if sum(found.values()) != 1:
        where = ", ".join(found) if found else "no product file"
        return "", f"the snippet occurs {sum(found.values())} times ({where})"
    (name,) = found
    changed = texts[name].replace(fault.find, fault.replace)
    try:
        if changed == texts[name]:
            return "", "the replacement makes no change"
        if name.endswith(".py"):
            ast.parse(changed)
        elif name.endswith(".yaml"):
            yaml.safe_load(changed)
    except (SyntaxError, yaml.YAMLError) as error:
        return "", f"with it {name} cannot be read: {error}"
    return name, changed


def missing_tests(fault: Fault) -> str:
    """Returns a file or a word of ``-k`` of which a fault's tests have none, else ""."""
    files, _, chosen = fault.tests.partition(" -k ")
    paths = [ROOT / name.partition("::")[0] for name in files.split()]
    if lost := next((path for path in paths if not path.exists()), None):
        return str(lost.relative_to(ROOT))
    found = [path for path in paths if path.is_file()]
    found += [file for path in paths for file in path.rglob("test_*.py")]
    text = " ".join([*files.split(), *(path.read_text() for path in found)]).lower()
    words = re.findall(r"\w+", chosen.lower())
    return next((w for w in words if w not in {"and", "or", "not"} and w not in text), "")


class Copy:
    """A copy of the tree in which one process of tests runs at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root / "tree"
        self._cache = root / "cache"
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (source := ROOT / name).is_file():
                target = self.root / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        # by content: a fault of the same size within the same second is seen as well
        compiled = ("--invalidation-mode", "checked-hash", "edgekit", "edgekit_device")
        command = [sys.executable, "-m", "compileall", "-q", *compiled]
        subprocess.run(command, cwd=self.root, check=True)

    def run_tests(self, arguments: str) -> Outcome:
        """Runs the tests in a process forked from this one, which has the libraries loaded."""
        start = time.monotonic()
        shutil.rmtree(self._cache, ignore_errors=True)
        self._cache.mkdir()
        shown = self._cache / "shown"
        child = os.fork()
        if not child:
            self._child(shown, shlex.split(arguments))
        ended, status = 0, 0
        while not ended and time.monotonic() - start < TIMEOUT:
            time.sleep(0.02)
            ended, status = os.waitpid(child, os.WNOHANG)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and its remaining children
        if not ended:
            os.waitpid(child, 0)
            return Outcome("killed", "out of time", TIMEOUT)
        seconds, out = time.monotonic() - start, shown.read_text(errors="replace")
        last = out.strip().rpartition("\n")[2]
        code = os.waitstatus_to_exitcode(status)
        if code in FAILED or code < 0:
            failed = re.search(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
            return Outcome("killed", failed[1] if failed else last, seconds)
        if code != PASSED or "passed" not in last:
            return Outcome("no test ran", last, seconds)
        return Outcome("survived", last, seconds)

    def _child(self, shown: Path, arguments: list[str]) -> NoReturn:
        code = 3
        try:
            os.setsid()
            handle = os.open(shown, os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.chdir(self.root)
            os.environ.update(
                PYTHONPATH=str(self.root),
                PYTHONDONTWRITEBYTECODE="1",
                EDGEKIT_CACHE=str(self._cache / "edgekit"),
            )
            sys.dont_write_bytecode = True
            for name in [module for module in sys.modules if module.partition(".")[0] == "tests"]:
                del sys.modules[name]  # the copy's own are run
            sys.path.insert(0, str(self.root))
            imported = {name: importlib.import_module(name) for name in PACKAGES}
            for module in imported.values():
                if not Path(str(module.__file__)).is_relative_to(self.root):
                    raise RuntimeError(f"the tests would import {module.__file__}, not the copy")
            base = f"--basetemp={self._cache / 'tmp'}"
            code = pytest.main(["-x", "-q", *PYTEST, base, *arguments])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def try_fault(self, fault: Fault, tests: str, texts: dict[str, str]) -> Outcome:
        name, changed = apply_fault(fault, texts)
        if not name:
            return Outcome("does not apply", changed)
        try:
            (self.root / name).write_text(changed)
            return self.run_tests(tests)
        finally:
            (self.root / name).write_text(texts[name])


class Worker:
    """The state of a process of the pool: its copy, and the tests that pass without a fault."""

    copy: Copy
    texts: dict[str, str]
    sound: dict[str, Outcome]

    @classmethod
    def begin(cls, folder: str) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for name in LIBRARIES:
            with suppress(ImportError):
                importlib.import_module(name)
        # the same examples each time, and a smaller failing one has no use here
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "faults",
            derandomize=True,
            deadline=None,
            database=None,
            phases=phases,
            suppress_health_check=(
                hypothesis.HealthCheck.too_slow,
                hypothesis.HealthCheck.function_scoped_fixture,
            ),
        )
        cls.copy = Copy(Path(folder) / str(os.getpid()))
        cls.texts, cls.sound = product_texts(cls.copy.root), {}

    @classmethod
    def judge(cls, fault: Fault) -> tuple[Fault, Outcome]:
        for tests in (fault.tests, f"{fault.tests} --all=full"):  # the quick ones first
            outcome = cls.copy.try_fault(fault, tests, cls.texts)
            if outcome.word not in ("survived", "no test ran"):
                break
        if outcome.word == "killed":
            if tests not in cls.sound:
                cls.sound[tests] = cls.copy.run_tests(tests)
            if cls.sound[tests].word != "survived":
                outcome = Outcome("tests fail without it", cls.sound[tests].detail)
        return fault, outcome


def run_faults(faults: list[Fault], jobs: int) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="edgekit-faults-") as folder:
        workers = multiprocessing.get_context("fork").Pool(jobs, Worker.begin, [folder])
        with workers:
            for fault, outcome in workers.imap_unordered(Worker.judge, faults):
                outcomes[fault.id] = outcome
                line = f"{outcome.word:14} {fault.id} ({outcome.seconds:.1f} s) {outcome.detail}"
                as_recorded = (outcome.word == "killed") == fault.killed
                print(line if as_recorded else f"{line}  <- recorded otherwise", flush=True)
    return outcomes


def record_outcomes(outcomes: dict[str, Outcome]) -> None:
    """Writes the outcomes into the file; comments, order and everything else stay."""
    lines = FAULTS.read_text().splitlines()
    current = ""
    for index, line in enumerate(lines):
        if match := re.fullmatch(r"- id: (\S+)", line.strip()):
            current = match[1]
        elif current in outcomes and line.startswith("    killed:"):
            word = outcomes[current].word
            if word in ("killed", "survived"):
                lines[index] = f"    killed: {str(word == 'killed').lower()}"
    FAULTS.write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="copies that are tested at once")
    parser.add_argument("--only", action="append", default=[], help="this subject or fault")
    parser.add_argument("--all", **OPTION)
    parser.add_argument("--record", action="store_true", help="write the results into the file")
    parser.add_argument("--check", action="store_true", help="only check that every fault applies")
    options = parser.parse_args()
    faults = read_faults()
    if options.only:
        faults = [f for f in faults if {f.id, f.subject} & set(options.only)]
        known = {name for fault in faults for name in (fault.id, fault.subject)}
        for name in options.only:
            if name not in known:
                parser.error(f"there is no fault or subject called {name!r}")
    if options.all:
        share = share_of(options.all)
        faults = [fault for fault in faults if fault.killed and share.has(fault.id)]
    if options.check:
        texts = product_texts(ROOT)
        outcomes: dict[str, Outcome] = {}
        for fault in faults:
            name, why = apply_fault(fault, texts)
            missing = missing_tests(fault)
            if not name or missing:
                why = why if not name else f"no test matches {missing}"
                outcomes[fault.id] = Outcome("does not apply", why)
                print(f"does not apply {fault.id}: {why}")
        print(f"{len(faults) - len(outcomes)} of {len(faults)} seeded faults apply")
        return 1 if any(f.killed and f.id in outcomes for f in faults) else 0
    outcomes = run_faults(faults, max(1, options.jobs))
    if options.record:
        record_outcomes(outcomes)
    summary = Counter(outcome.word for outcome in outcomes.values())
    print(", ".join(f"{count} {word}" for word, count in summary.most_common()))
    lost = [f.id for f in faults if f.killed and outcomes[f.id].word != "killed"]
    if lost and not options.record:
        print(f"recorded as killed, not so now: {', '.join(lost)}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
