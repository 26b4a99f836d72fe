"""Steps are timed, counted and told; a failing one is recorded."""

import contextlib
import io
import itertools
import math
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from edgekit.cli.main import app
from edgekit.config.loader import open_config
from edgekit.error_document import FinishedStep
from edgekit.errors import BoardError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.progress import SilentProgress, StepLog, bound_text
from edgekit.pipeline.run import STEP_NAMES as STEPS
from edgekit.pipeline.steps.deploy import InstallSteps
from edgekit.reports.terminal.progress import Terminal
from tests.pipeline.nets import small_config, small_net


def clock():
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_statuses_and_seconds():
    steps = StepLog(STEPS, SilentProgress(), clock())
    with steps.step("check"):
        pass
    with steps.step("plan") as step:
        step.reuse("same as before")
    with pytest.raises(KeyboardInterrupt), steps.step("build"):
        raise KeyboardInterrupt
    with pytest.raises(BoardError), steps.step("deploy"):
        raise BoardError("the disk is full")
    assert steps.done == [
        FinishedStep("check", "done", 1.0, ""),
        FinishedStep("plan", "reused", 1.0, "same as before"),
        FinishedStep("build", "failed", 1.0, "interrupted"),
        FinishedStep("deploy", "failed", 1.0, "the disk is full"),
    ]


def test_a_job_that_was_cancelled_is_no_failure_and_tells_what_went_on():
    out = io.StringIO()
    steps = StepLog(["self-test"], Terminal(Console(file=out, width=99)), clock())
    with contextlib.suppress(BoardError), steps.step("self-test") as step:
        step.doing = "after the self-test, soak"
        raise BoardError("the job was cancelled", code="job.cancelled")
    detail = "after the self-test, soak: the job was cancelled"
    assert steps.done == [FinishedStep("self-test", "cancelled", 1.0, detail)]
    assert out.getvalue() == f"[1/1] self-test: cancelled, 1.0 s, {detail}\n"


def test_an_installation_that_is_cancelled_in_its_soak_passed_the_self_test():
    steps = StepLog(["deploy", "refit", "self-test"], SilentProgress(), clock())
    client = SimpleNamespace(name="lab", note="")
    bundle = SimpleNamespace(manifest=SimpleNamespace(weights=()))
    installing = InstallSteps(client, bundle, steps)
    with contextlib.suppress(BoardError), installing:
        for phase in ("hello", "selftest", "switch", "soak"):
            installing.progress(phase, 0, 1)
        raise BoardError("the job was cancelled", code="job.cancelled")
    last = steps.done[-1]
    assert (last.name, last.status) == ("self-test", "cancelled")
    assert last.detail == "after the self-test, soak: the job was cancelled"


def test_lines_without_a_terminal():
    out = io.StringIO()
    steps = StepLog(["check", "plan"], Terminal(Console(file=out, width=80)), clock())
    with steps.step("check") as step:
        steps.progress.update(1, 2, "half")
        step.detail = "174 layers [all]"
    with steps.step("plan") as step:
        step.reuse()
    first, second = out.getvalue().splitlines()
    # a log's lines have no columns
    assert first == "[1/2] check: 1.0 s, 174 layers [all]"
    assert second == "[2/2] plan: reused"
    assert "\x1b" not in out.getvalue()


class Screen:
    """A console that keeps what its spinner shows."""

    is_terminal, color_system = True, "truecolor"

    def __init__(self):
        self.shown = []
        self.start = self.stop = lambda: None
        self.update = self.shown.append

    def status(self, text):
        return self


def left(screen):
    """The time left that is shown now, None without."""
    _, found, words = screen.shown[-1].rpartition(", ")
    return float(words.split()[0]) if found else None


def test_time_left_counts_from_the_first_news():
    screen, now = Screen(), [100.0]
    progress = Terminal(screen, clock=lambda: now[0])
    progress.begin(1, 1, "build")
    now[0] = 200.0  # sending the model took its time
    progress.update(0, 10, "layers")
    assert left(screen) is None
    now[0] = 210.0
    progress.update(5, 10, "layers")
    assert left(screen) == 10.0
    now[0] = 300.0
    progress.update(1, 4, "tactics")  # another count
    assert left(screen) is None


def test_time_left_of_old_news_is_by_their_own_clock():
    screen = Screen()
    progress = Terminal(screen, clock=lambda: 7.0)
    progress.begin(1, 1, "build")
    progress.update(1, 10, "sending")
    # a build that is joined: a minute of news in no time
    for done in range(7):
        progress.update(done, 10, "tactics", at=1e9 + 10 * done)
    assert left(screen) == 40.0


def test_each_pass_has_its_own_estimate_and_none_from_a_single_sample():
    screen, now = Screen(), [0.0]
    progress = Terminal(screen, clock=lambda: now[0])
    progress.begin(5, 12, "build")
    for _ in range(2):  # the second pass begins again
        for done in range(16):
            progress.update(done, 16, "accuracy")
            assert left(screen) == (10.0 * (16 - done) if done > 1 else None)
            now[0] += 10.0


def test_details_name_their_step_and_no_count_is_told_twice():
    out, now = io.StringIO(), [0.0]
    progress = Terminal(Console(file=out, width=120), verbose=True, clock=lambda: now[0])
    progress.begin(3, 12, "calibrate")
    for done in range(1, 31):
        progress.update(done, 30, f"ranges, input {done} of 30")
        now[0] += 0.9
    progress.update(0, 0, "exact counts")
    progress.detail("read twice")
    progress.end("calibrate", "done", 27.0, "")
    progress.note("of no step")
    reported = out.getvalue().splitlines()
    assert reported == [
        "[3/12] calibrate: ranges, input 1 of 30 3 %",
        "[3/12] calibrate: exact counts",
        "[3/12] calibrate: read twice",
        "[3/12] calibrate: 27.0 s",
        "of no step",
    ]


class Passes(SilentProgress):
    """Keeps what share of which pass was told: a pass is a text without its counts."""

    def __init__(self):
        self.step, self.messages = "", []

    def begin(self, number, total, name):
        self.step = name

    def update(self, done, total, text="", *, at=None):
        name = self.step, re.sub(r"(, (input|segment) |: ).*", "", text)
        self.messages.append((name, done / total if total else None))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("calibration", "passes"),
    [
        (
            "{method: auto, count: 5}",
            {
                ("calibrate", "ranges"),
                ("build", "accuracy, plan 1 of 2"),
                ("build", "accuracy, plan 2 of 2"),
            },
        ),
        (
            "{method: entropy, count: 5}",
            {
                ("calibrate", "ranges"),
                ("build", "accuracy, plan 2 of 2"),
                ("build", "accuracy with N in FP16, plan 2 of 2"),
            },
        ),
    ],
)
def test_within_a_pass_progress_never_goes_back(tmp_path, calibration, passes):
    # with an engine for each device, frames share two plans
    extra = "accuracy: {min: 0.9999}\nbuild: {mode: split}\n"
    config = small_config(tmp_path, objective="throughput", extra=extra)
    config.write_text(config.read_text().replace("{method: entropy, count: 3}", calibration))
    reported = Passes()
    with Pipeline(
        open_config(config), cache=Cache(tmp_path / "cache"), progress=reported
    ) as pipeline:
        pipeline.build()
    names = {(step, re.sub(r"\d+ layers?", "N", name)) for (step, name), _ in reported.messages}
    assert passes <= names, names
    before, shares = None, {}
    for name, share in reported.messages:
        assert name == before or name not in shares or "placing" in name[1], f"{name} twice"
        if share is not None:
            assert shares.get(name, 0.0) <= share, name
        before, shares[name] = name, shares.get(name, 0.0) if share is None else share


def test_the_time_left_never_rises_when_later_parts_are_slower():
    screen, now = Screen(), [0.0]
    progress = Terminal(screen, clock=lambda: now[0])
    progress.begin(5, 12, "build")
    told = []
    for done in range(33):
        progress.update(done, 32, "comparing calibration methods")
        told += [found] if (found := left(screen)) is not None else []
        now[0] += 1.0 if done < 8 else 4.0
    assert told == sorted(told, reverse=True)
    assert told[0] > 20
    assert told[-1] == 0


def test_what_a_search_found_has_units_and_says_when_nothing_is_proven():
    assert bound_text(42.335, -math.inf, "{:.1f} us".format) == "best 42.3 us, no bound yet"
    assert bound_text(math.inf, 3.0) == "best none, bound 3"


def test_without_a_terminal_a_step_is_one_line_however_long_it_takes():
    out, now = io.StringIO(), [0.0]
    progress = Terminal(Console(file=out, width=120), clock=lambda: now[0])
    progress.begin(7, 9, "deploy")
    for second in range(0, 2400, 60):
        now[0] = float(second)
        progress.update(second, 2400, "watching the new release")
    progress.update(0, 0, "checking")
    progress.end("deploy", "done", 2400.0, "")
    assert out.getvalue().splitlines() == ["[7/9] deploy: 2400.0 s"]


def test_lines_without_a_terminal_have_no_padding_and_no_empty_names():
    out, ticks = io.StringIO(), iter(range(0, 1000, 20))
    progress = Terminal(Console(file=out, width=80), verbose=True, clock=lambda: next(ticks))
    for number, status in enumerate(("done", "reused", "failed", "left"), 8):
        progress.begin(number, 12, "self-test")
        progress.update(2, 4, "sending")
        progress.note("")
        progress.note("a note")
        progress.end("self-test", status, 1.25, "" if status == "done" else "why")
    lines = out.getvalue().splitlines()
    assert all(line == " ".join(line.split()) for line in lines)
    assert all(lines)
    assert "[8/12] self-test: sending 50 %" in lines
    assert "[8/12] self-test: 1.2 s" in lines
    assert "[9/12] self-test: reused, why" in lines
    assert "[10/12] self-test: FAILED, 1.2 s, why" in lines


@pytest.mark.parametrize("scale", [1.0, 0.0], ids=["varied", "constant"])
def test_the_build_says_what_its_accuracy_is_of(tmp_path, scale):
    config = small_config(tmp_path, precision="fp16")
    small_net(tmp_path / "small.onnx", scale=scale)  # 0: its outputs are those of the last bias
    with Pipeline(open_config(config), cache=Cache(tmp_path / "cache")) as pipeline:
        steps = pipeline.build().to_json()["steps"]
    (reported,) = (step["detail"] for step in steps if step["name"] == "build")
    assert "3 synthetic" in reported
    assert "emulated on this CPU" in reported
    assert ("cosine" in reported) == bool(scale)
    assert ("accuracy unknown" in reported) == (not scale)


@pytest.mark.whole
def test_a_refit_judges_outputs_that_hardly_vary_as_a_build_does(tmp_path, capsys):
    config = small_config(tmp_path, precision="fp16", extra="accuracy: {metric: snr_db, min: 90}\n")
    small_net(tmp_path / "small.onnx", scale=0.0)
    small_net(tmp_path / "other.onnx", seed=3, scale=0.0)
    reported = (
        "accuracy unknown, because the outputs hardly differ between the inputs; "
        "accuracy.min (snr_db)"
    )
    refit = ["refit", "--weights", str(tmp_path / "other.onnx"), "--out", str(tmp_path / "out")]
    for command in (["build"], refit):
        assert app([*command, str(config), "-q"]) == 0
        assert f"{reported} is not checked" in capsys.readouterr().out
