"""The ``edgekit.log/1`` document of a build log: its facts, the reasons why layers are not on the
DLA, and its errors with causes.
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
        rule: The rule's id.
        also: Further rules that may match the builder's words.
        layers: The layers, by the log's names.
        words: The builder's reasons, at most three.
        text: The restriction in one sentence.
        fix: The remedy if none of ``fixes`` applies to the layer.
        fixes: Remedies for special cases.
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
    """A refused layer without a known rule; ``families`` are rule families that may refuse its
    type.
    """

    families: tuple[str, ...] = member(array(long_text))


@document(frozen=True)
class LoggedNode:
    """The node that the ONNX parser refused; None for values that no line names.

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
        cause: The cause of the error.
        remedy: The remedy.
        rules: DLA rules with the same meaning.
        source: Titles of the sources in one text.
        sources: The sources.
        words: The first line with the error; empty if there is none.
        line: Its number, from 1; 0 if there is none.
        count: Number of lines with the error.
        seen: Releases in which it was seen.
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
    """trtexec's measurements: inferences a second, milliseconds by quantity and statistic, and its
    own warnings about them.
    """

    throughput_qps: float | None = member(nullable(_NUMBER))
    times_ms: Mapping[str, Mapping[str, float]] = member(mapping(mapping(_NUMBER)))
    warnings: tuple[str, ...] = member(array(long_text))


@document(frozen=True, kw_only=True)
class ExplainedLog(FormerDict):
    """An ``edgekit.log/1``.

    Attributes:
        file: The log.
        program: The program that wrote it; None for TensorRT's own logger.
        passed: True if the run passed; None if unknown.
        targets: Boards on which it may have been written.
        headline: A summary in some lines.
        log: The log's facts.
        rules: Refused layers by matching rule, the most frequent first.
        unexplained: Refused layers without a known rule.
        errors: Known errors with cause and remedy.
        unknown_errors: Other lines of that severity.
        times: trtexec's measurements.
        compare: The placement compared with the given model's verdicts, or None.
        notes: Notes for the reader.
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
