"""The exhaustive part of the suite: eight eighths are all of it, and no test is in two."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import tries
from tests.tries import EIGHTHS, eighth_of, share_of

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
# one test of each kind; what a run tries of a test that takes `exhaustive` is in its outcome
SUITE = """
import pytest
from tests.tries import tries

TRIES = tries(30)

def test_quick(): pass

@pytest.mark.whole
@pytest.mark.parametrize("case", range(30))
def test_long(case): pass

@pytest.mark.few(3)
@pytest.mark.parametrize("case", range(30))
def test_cases(case): pass

@pytest.mark.parametrize("case", range(30))
def test_moments(case, exhaustive, record_property):
    record_property("exhaustive", exhaustive)

def test_property(record_property):
    record_property("tries", TRIES)
"""


@pytest.fixture
def ran(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs SUITE; returns the names that ran, which were exhaustive, and the closing lines."""
    monkeypatch.setattr(tries._Run, "share", tries._Run.share)
    pytester.makeini("[pytest]\nmarkers =\n  whole: -\n  few(count): -\n")
    pytester.makepyfile(test_suite=SUITE)

    def run(*arguments: str):
        done = pytester.inline_run("-p", "tests.tries", "-p", "no:cacheprovider", *arguments)
        passed = done.listoutcomes()[0]
        names = {report.nodeid.partition("::")[2] for report in passed}
        properties = {
            (report.nodeid.partition("::")[2], *found)
            for report in passed
            for found in report.user_properties
        }
        return names, properties

    return run


def test_without_all_only_what_is_quick_runs(ran) -> None:
    names, properties = ran()
    cases = {f"test_moments[{case}]" for case in range(30)}
    first = {f"test_cases[{case}]" for case in range(3)}
    assert names == {"test_quick", "test_property", *first, *cases}
    assert properties == {
        ("test_property", "tries", 10),
        *((name, "exhaustive", False) for name in cases),
    }


def test_eight_eighths_are_everything_and_each_long_test_is_in_one(ran) -> None:
    quick, little = ran()
    whole, much = ran("--all=full")
    assert len(whole) == 2 + 3 * 30
    assert {found[1:] for found in much} == {("tries", 30), ("exhaustive", True)}
    counted: Counter[str] = Counter()
    for eighth in EIGHTHS:
        names, properties = ran(f"--all={eighth}")
        assert quick <= names, "what is quick always runs"
        more = {name for name, *_ in properties - little}
        counted.update([*(names - quick), *more])
        # by name alone: the same in any order, process and folder
        assert all(
            eighth_of(f"test_suite.py::{name}") == eighth
            for name in (names - quick) | (more - {"test_property"})
        )
    assert counted == dict.fromkeys(
        (whole - quick) | {name for name, *_ in much}, 1
    )  # each once, and all of them
    assert {eighth_of(f"test_suite.py::{name}") for name in whole} == set(EIGHTHS)


@pytest.mark.slow
def test_workers_try_what_the_first_process_chose(
    ran, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    names, _ = ran("--all=5")
    done = pytester.runpytest_subprocess("-p", "tests.tries", "-n", "2", "--all=5")
    done.assert_outcomes(passed=len(names))
    line = "exhaustive part: eighth 5 of 8, as asked for; all of it: scripts/test --all=full"
    done.stdout.fnmatch_lines([line, f"*{len(names)} passed*"])


def test_the_commit_chooses_and_the_closing_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for commit in ("be0a8261" + "0" * 32, "dc327f80" + "1" * 32):
        monkeypatch.setattr(tries, "_commit", lambda commit=commit: commit)
        share = share_of("commit")
        assert share == share_of("commit")
        (eighth,) = share.eighths
        assert eighth in EIGHTHS
        assert share.line == (
            f"exhaustive part: eighth {eighth} of 8, chosen by commit {commit[:8]}; "
            "all of it: scripts/test --all=full"
        )
    monkeypatch.setattr(tries, "_commit", lambda: "")
    assert "no commit" in share_of("commit").line
    commits = [f"{number:040x}" for number in range(200)]
    assert {eighth_of(commit) for commit in commits} == set(EIGHTHS)


@pytest.mark.parametrize("wrong", ["9", "0", "tests/dla"])
def test_another_word_after_all_is_refused(wrong: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tries", "--all", wrong],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--all=full, --all=1 to --all=8, or --all after the paths" in done.stderr


def test_there_is_one_way_to_mark_cases() -> None:
    """A mark `whole` of a case would be counted by `few` and hide the first cases."""
    cases = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if "marks=pytest.mark.whole" in path.read_text(encoding="utf-8") and path != Path(__file__)
    ]
    assert cases == []
