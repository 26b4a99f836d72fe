"""Explains a build log: the placement of its layers, the rules that refused layers break, and the
causes of its errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edgekit.buildlog.comparison import load_messages
from edgekit.buildlog.diagnosis import LogError
from edgekit.buildlog.facts import BuildLog, Fallback
from edgekit.buildlog.log_document import (
    ExplainedLog,
    LoggedError,
    LoggedNode,
    LoggedRule,
    LoggedTimes,
    Unexplained,
)
from edgekit.buildlog.missing_operators import about_operator
from edgekit.buildlog.reading import WholeLog
from edgekit.dla.explanation import explained
from edgekit.dla.rule_files import RuleSource
from edgekit.dla.rules import load_rules
from edgekit.errors import UsageError
from edgekit.targets.board import Target
from edgekit.targets.loader import get, names
from edgekit.targets.releases import parse_version, supports_dla
from edgekit.text import counted, listed

_SLOTS = "memory.loadables"
_RELEASE = "general.tensorrt"
_FP32 = "general.fp32"
_NOT_AVAILABLE = "dla.not-available"
_OPERATORS = ("network.unknown-operator", "engine.plugin")
# characters of a quoted log line in the headline
_LINE = 200


def explain_whole(whole: WholeLog, name: str) -> ExplainedLog:
    """Returns a log's facts, the rules that its refused layers break, and its errors with causes.

    Args:
        whole: The log.
        name: Name of the log in the document.
    """
    log, boards = whole.log, matching_boards(whole.log)
    errors = [_explain_error(error, log, boards) for error in whole.diagnosis.errors]
    rules, unexplained = _broken_rules(log, whole.diagnosis.errors, errors)
    errors += _unsupported_dla(log, boards, {error.id for error in errors})
    unknown = [
        words for words, line in whole.diagnosis.unknown.items() if line not in whole.reason_lines
    ]
    notes: list[str] = []
    traced = whole.diagnosis.program == "kernel" or log.evidence == "placement"
    if not traced and log.requested_dla is not False and not errors:
        notes.append("a whole placement needs a log of trtexec --verbose up to its last line")
    summary = whole.summary
    return ExplainedLog(
        file=name,
        program=whole.diagnosis.program or None,
        passed=whole.diagnosis.passed,
        targets=tuple(board.name for board in boards),
        headline=tuple(_headline(whole, boards, errors)),
        log=log,
        rules=tuple(rules),
        unexplained=tuple(unexplained),
        errors=tuple(errors),
        unknown_errors=tuple(unknown),
        times=LoggedTimes(summary.throughput_qps, summary.times_ms, summary.warnings),
        compare=None,
        notes=tuple(notes),
    )


def matching_boards(log: BuildLog) -> list[Target]:
    """Returns the boards with the log's GPU; empty if the log does not name it."""
    boards = [get(name) for name in names()]
    if log.compute_capability:
        return [board for board in boards if board.compute_capability == log.compute_capability]
    words = log.device.replace("(", " ").split()
    return [board for board in boards if board.gpu.name in words]


def likely_board(boards: list[Target]) -> str:
    """Returns the board for the verdicts: a Jetson with a DLA if possible.

    Raises:
        UsageError: No board has a DLA.
    """
    able = [board for board in boards if board.dla.cores]
    if not able:
        raise UsageError("--model needs a board, and the log names none", hint="give --target")
    return min(able, key=_jetson_first).name


def _explain_error(error: LogError, log: BuildLog, boards: list[Target]) -> LoggedError:
    """Returns an error with cause and remedy for the log's release and board."""
    known, node = error.known, error.node
    found = LoggedError(
        id=known.id,
        cause=f"{error.detail}: {known.cause}" if error.detail else known.cause,
        remedy=known.remedy_for(log.tensorrt, lower=_allows_lower_precision(log)),
        rules=known.rules,
        source="; ".join(source.title for source in known.sources),
        sources=tuple(RuleSource(source.title, source.where) for source in known.sources),
        words=error.words,
        line=error.line,
        count=error.count,
        seen=known.seen,
        node=None
        if node is None
        else LoggedNode(
            node.operator or None, node.number, node.output or None, node.assertion or None
        ),
    )
    if not error.operator or known.id not in _OPERATORS:
        return found
    board = min(boards, key=_jetson_first, default=None)
    about = about_operator(error.operator, error.version, log.tensorrt, board)
    if about is None:
        return found
    what, remedy = about
    cause = f"{error.detail}: {what}" if node is not None else what
    return replace(found, cause=cause, remedy=remedy)


def _allows_lower_precision(log: BuildLog) -> bool:
    """Returns True if the build allows FP16 or INT8."""
    return not {"fp16", "int8"}.isdisjoint(log.precisions)


def _jetson_first(board: Target) -> tuple[bool, str]:
    return board.platform != "jetson", board.name


def _broken_rules(
    log: BuildLog, errors: Iterable[LogError], documents: Iterable[LoggedError]
) -> tuple[list[LoggedRule], list[Unexplained]]:
    """Returns refused layers by matching rule, the most frequent first, and those without a rule.

    If an error reports the same layer, it and the layer's rule share a single remedy.
    """
    said = {
        line: (error.known.rules, document.remedy)
        for error, document in zip(errors, documents, strict=True)
        for line in error.lines
    }
    messages, known = load_messages(), load_rules().rules
    groups: dict[tuple[str, ...], list[Fallback]] = {}
    remedies: dict[tuple[str, ...], str] = {}
    unexplained = []
    for fallback in log.fallbacks:
        # an error on the same line is more precise than the message: its rules come first
        of_error, remedy = said.get(fallback.line, ((), ""))
        found = messages.rules(fallback.words, fallback.kind)
        if found and of_error:
            found = tuple(dict.fromkeys((*of_error, *found)))
        # FP32 cannot be why a build refuses a layer that it may also build in FP16 or INT8
        if _allows_lower_precision(log):
            found = tuple(rule for rule in found if rule != _FP32)
        if fallback.cause == "slots":
            found = (_SLOTS,)
        if found:
            groups.setdefault(found, []).append(fallback)
            if remedy and (not of_error or found[0] in of_error):
                remedies[found] = remedy
        else:
            unexplained.append(Unexplained(**vars(fallback), families=_families(fallback.kind)))
    rows = []
    for found, layers in sorted(groups.items(), key=lambda item: -len(item[1])):
        first, *also = found
        rule, better = explained(known[first]), remedies.get(found)
        rows.append(
            LoggedRule(
                rule=first,
                also=tuple(also),
                layers=tuple(fallback.layer for fallback in layers),
                words=tuple(dict.fromkeys(word for layer in layers for word in layer.words))[:3],
                text=rule.text,
                fix=better or rule.fix,
                fixes=() if better else rule.fixes,
                source=rule.source,
                sources=rule.sources,
                certainty=rule.certainty,
            )
        )
    return rows, unexplained


def _families(kind: str) -> tuple[str, ...]:
    """Returns the families of the rules that may refuse a layer type."""
    return tuple(
        dict.fromkeys(
            rule.family for rule in load_rules() if kind in rule.kinds and rule.effect == "refuse"
        )
    )


def _boards_with_supported_dla(log: BuildLog, boards: list[Target]) -> list[Target] | None:
    """Returns the boards whose DLA the log's release supports; None if unknown."""
    version = log.tensorrt
    if not version or parse_version(version) < (8, 4):
        return None
    return [
        board
        for board in boards or map(get, names())
        if board.dla.cores and supports_dla(board, version)
    ]


def _unsupported_dla(log: BuildLog, boards: list[Target], found: set[str]) -> list[LoggedError]:
    """Returns the error for a requested DLA that the release does not support, if no line has
    it.
    """
    if (
        log.requested_dla is not True
        or _NOT_AVAILABLE in found
        or _boards_with_supported_dla(log, boards) != []
    ):
        return []
    rule = explained(load_rules().rules[_RELEASE])
    return [
        LoggedError(
            id="dla.release",
            cause=f"{rule.text}: TensorRT {log.tensorrt}",
            remedy=rule.fix,
            rules=(_RELEASE,),
            source=rule.source,
            sources=rule.sources,
            words="",
            line=0,
            count=0,
        )
    ]


def _headline(whole: WholeLog, boards: list[Target], errors: list[LoggedError]) -> list[str]:
    log = whole.log
    facts = [f"{whole.diagnosis.program or 'TensorRT'} log"]
    facts.append(f"TensorRT {log.tensorrt}" if log.tensorrt else "TensorRT release not said")
    facts.append(_board_words(log, boards))
    if log.precisions:
        facts.append("+".join(log.precisions).upper())
    if log.dla_core is not None:
        facts.append(f"DLA core {log.dla_core}")
    lines = [", ".join(facts)]
    if _boards_with_supported_dla(log, boards) == []:
        whose = "the DLA of none of these boards" if boards else "no Jetson's DLA"
        lines.append(f"TensorRT {log.tensorrt} supports {whose}")
    end = whole.diagnosis.end
    if log.evidence != "none" or end is None:
        lines.append(_placement_words(whole))
    if end is not None:
        document = errors[whole.diagnosis.errors.index(end)]
        lines.append(f"{end.known.stops} (line {end.line}): {document.cause}")
        lines.append(f"What to do: {document.remedy}")
    if log.accepted is not None and log.accepted[0] < log.accepted[1]:
        lines.append(f"{log.accepted[0]} of {counted(log.accepted[1], 'loadable')} fit on the core")
    latency = whole.summary.times_ms.get("latency", {})
    if "median" in latency and whole.summary.throughput_qps is not None:
        lines.append(
            f"trtexec measured {latency['median']:g} ms (median), "
            f"{whole.summary.throughput_qps:g} inferences a second"
        )
    if (crash := whole.diagnosis.crash) is not None:
        after = (
            f"after line {crash.after_line}: {crash.after[:_LINE]}"
            if crash.after
            else "before any other line"
        )
        lines.append(
            f"The kernel killed {crash.killed} (line {crash.line}): out of memory"
            if crash.killed
            else f"The run crashed {after} ({crash.words[:_LINE]})"
        )
    elif whole.diagnosis.passed is False:
        lines.append("The run failed")
    return lines


def _board_words(log: BuildLog, boards: list[Target]) -> str:
    if not (log.device or log.compute_capability):
        return "board not said"
    said = log.device or f"compute capability {log.compute_capability}"
    if len(boards) == 1:
        return f"board {said} ({boards[0].name})"
    which = listed([board.name for board in boards], 4)
    if not which:
        return f"board {said}, which edgekit does not know"
    return f"board {said} (the log fits several: {which})"


def _placement_words(whole: WholeLog) -> str:
    log = whole.log
    refused = counted(len(log.fallbacks), "layer")
    if log.requested_dla is False:
        return "No DLA was requested: --useDLACore=0 --allowGPUFallback does"
    if log.evidence == "placement" and not log.loadables:
        return f"No layer is on the DLA; {refused} refused"
    if log.evidence == "placement":
        members = sum(len(loadable.layers) for loadable in log.loadables)
        inside = f" with {counted(members, 'layer')}" if members else ""
        return (
            f"{counted(len(log.loadables), 'loadable')}{inside} on the DLA, "
            f"{counted(len(log.gpu_layers), 'layer')} on the GPU, {refused} refused"
        )
    if log.evidence == "capability":
        able = counted(len(log.capable), "layer")
        return (
            f"{able} could run on the DLA (the log ends before their placement); {refused} refused"
        )
    if log.evidence == "refusals":
        return f"The DLA refused {refused}; the log does not say where the other layers run"
    if whole.diagnosis.program == "kernel":
        return _kernel_words(whole.diagnosis.devices)
    return "The log does not mention DLA layers"


def _kernel_words(devices: tuple[str, ...]) -> str:
    cores = [device for device in devices if device.startswith("nvdla")]
    if cores:
        which = " and ".join(cores)
        return f"The kernel's driver has {which}, and this log has no fault of the DLA"
    return (
        "The kernel's log does not name the DLA (nvdla0, nvdla1): the board has none, its driver "
        "is not loaded, or lines were left out"
    )
