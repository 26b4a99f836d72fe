"""The ``edgekit.log/1`` of a build log: what it says, why layers are not on the DLA, and what its
errors mean.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgekit.buildlog.comparison import LogComparison
from edgekit.buildlog.facts import BuildLog, Fallback
from edgekit.dla.explanation import CaseFix
from edgekit.dla.rule_files import RuleSource
from edgekit.removed import FormerDict
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    flag,
    long_text,
    mapping,
    member,
    nullable,
    number,
    record,
    records,
)

_NUMBER = number(-1e100, 1e100)


@document(frozen=True, kw_only=True)
class LoggedRule:
    """A rule that refused layers break.

    Attributes:
        rule: Its id.
        also: Further rules that the builder's words may mean.
        layers: The layers, by the log's names.
        words: The builder's reasons, at most three.
        text: The restriction in one sentence.
        fix: What to do where none of ``fixes`` is for the layer.
        fixes: What to do in certain cases.
        source: Titles of the sources in one text.
        sources: The sources.
        certainty: "certain" or "disputed".
    """

    rule: str = member(long_text)
    also: tuple[str, ...] = member(array(long_text))
    layers: tuple[str, ...] = member(array(long_text))
    words: tuple[str, ...] = member(array(long_text))
    text: str = member(long_text)
    fix: str = member(long_text)
    fixes: tuple[CaseFix, ...] = member(records(CaseFix))
    source: str = member(long_text)
    sources: tuple[RuleSource, ...] = member(records(RuleSource))
    certainty: str = member(choice("certain", "disputed"))


@document(frozen=True, kw_only=True)
class Unexplained(Fallback):
    """A refused layer without a known rule; ``families`` are those that may refuse its type."""

    families: tuple[str, ...] = member(array(long_text))


@document(frozen=True)
class LoggedNode:
    """The node that the ONNX parser refused; None for what no line names.

    Attributes:
        number: The node's number in the file.
    """

    operator: str | None = member(nullable(long_text))
    number: int | None = member(nullable(fields.count))
    output: str | None = member(nullable(long_text))
    assertion: str | None = member(nullable(long_text))


@document(frozen=True, kw_only=True)
class LoggedError:
    """A known error.

    Attributes:
        id: Its id in ``trt/log_errors.yaml``.
        cause: What it means.
        remedy: What to do.
        rules: DLA rules that say the same.
        source: Titles of the sources in one text.
        sources: The sources.
        words: The first line that says so; empty where no line does.
        line: Its number, from 1; 0 where no line says so.
        count: Lines that say so.
        seen: Where it was seen.
        node: The node that the ONNX parser refused.
    """

    id: str = member(long_text)
    cause: str = member(long_text)
    remedy: str = member(long_text)
    rules: tuple[str, ...] = member(array(long_text))
    source: str = member(long_text)
    sources: tuple[RuleSource, ...] = member(records(RuleSource))
    words: str = member(long_text)
    line: int = member(fields.count)
    count: int = member(fields.count)
    seen: tuple[str, ...] = member(array(long_text), absent=())
    node: LoggedNode | None = member(record(LoggedNode), absent=None)


@document(frozen=True)
class LoggedTimes:
    """What trtexec measured: inferences a second, milliseconds by what and statistic, and what it
    says against its own numbers.
    """

    throughput_qps: float | None = member(nullable(_NUMBER))
    times_ms: Mapping[str, Mapping[str, float]] = member(mapping(mapping(_NUMBER)))
    warnings: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class ExplainedLog(FormerDict):
    """An ``edgekit.log/1``.

    Attributes:
        file: The log.
        program: Who wrote it; None for TensorRT's own logger.
        passed: Whether the run passed; None where the log does not say.
        targets: Boards that it may be from.
        headline: What it is about, in some lines.
        log: What it says.
        rules: Refused layers by the rule that says the same, the most frequent first.
        unexplained: Refused layers without a known rule.
        errors: Its errors with cause and remedy.
        unknown_errors: Its other lines of that severity.
        times: What trtexec measured.
        compare: Its placement beside the verdicts of the model that was given, or None.
        notes: What a person should know.
    """

    schema: str = member(choice("edgekit.log/1"), default="edgekit.log/1")
    file: str = member(long_text)
    program: str | None = member(nullable(long_text))
    passed: bool | None = member(nullable(flag))
    targets: tuple[str, ...] = member(array(long_text))
    headline: tuple[str, ...] = member(array(long_text))
    log: BuildLog = member(record(BuildLog))
    rules: tuple[LoggedRule, ...] = member(records(LoggedRule))
    unexplained: tuple[Unexplained, ...] = member(records(Unexplained))
    errors: tuple[LoggedError, ...] = member(records(LoggedError))
    unknown_errors: tuple[str, ...] = member(array(long_text))
    times: LoggedTimes = member(record(LoggedTimes))
    compare: LogComparison | None = member(nullable(record(LogComparison)))
    notes: tuple[str, ...] = member(array(long_text))
