"""SARIF 2.1.0 of checks for code scanning: a result for each reason that keeps a layer off the DLA,
with the rule's text, fix and sources; for each node that the parser refuses; and for each listed
shape of a range.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from edgekit.dla.explanation import explained
from edgekit.dla.rule_files import Rule
from edgekit.dla.rules import load_rules
from edgekit.network.source import is_builtin
from edgekit.reports.buckets import HEAD, bucket_rows
from edgekit.version import __version__

if TYPE_CHECKING:
    from edgekit.placement.check_document import Check

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
PARSE = "model.parse"
SECOND = "model.parser"
SHAPE = "model.buckets"
_PARSE_RULE = {
    "id": PARSE,
    "shortDescription": {"text": "TensorRT's ONNX parser imports every node."},
    "fullDescription": {
        "text": "TensorRT's ONNX parser, of the release that the check is for, imports every node "
        "of the model. Otherwise no engine can be built."
    },
    "help": {
        "text": "Use a newer TensorRT, another opset or exporter option, cut the network before "
        "the node, or give a plugin; the message names the remedies that fit."
    },
    "properties": {"tags": ["parser"]},
}
_SECOND_RULE = {
    "id": SECOND,
    "shortDescription": {"text": "NVIDIA's own ONNX parser imports the model."},
    "fullDescription": {
        "text": "The parser of TensorRT for RTX, of the TensorRT 11 family, imports the model. "
        "Another release on the board may import a node that this parser refuses."
    },
    "help": {
        "text": "Read the node's entry in edgekit's table for the board's release, and try the "
        "network on the board."
    },
    "properties": {"tags": ["parser"]},
}
_SHAPE_RULE = {
    "id": SHAPE,
    "shortDescription": {"text": "Each listed shape of a range has engines of its own."},
    "fullDescription": {
        "text": "A DLA takes one shape. Each listed shape of a range (model.buckets) is a network "
        "of its own there, and the GPU's engine with profiles takes the other shapes."
    },
    "help": {
        "text": "List the shapes that matter with model.buckets; a DLA core holds 16 loadables of "
        "all shapes together. The times are predicted."
    },
    "properties": {"tags": ["shapes"]},
}
_OWN = {PARSE: _PARSE_RULE, SECOND: _SECOND_RULE, SHAPE: _SHAPE_RULE}
_LEVELS = {"certain": "warning", "disputed": "note"}
# the beginning of a source: github.com/NVIDIA/TensorRT, docs.nvidia.com
_PLACE = re.compile(r"(?:[\w-]+\.)+[a-z]{2,}(?:/[^\s,:;()]+)*")


@dataclass(frozen=True)
class Finding:
    """A result: a rule's finding about a layer or a node (``kind``) of a checked model."""

    check: Check
    name: str
    kind: str
    rule: str
    level: str
    text: str


def sarif(checks: Sequence[Check]) -> dict[str, object]:
    """Returns one SARIF log with one run for ``edgekit.check/1`` documents.

    A node that the parser refuses is an error. A disputed verdict, a refusal by NVIDIA's parser and
    each listed shape of a range are notes; any other result is a warning. The location is the
    model's file, and the logical location is the layer or node; a result of the same rule and
    layer keeps its fingerprint.
    """
    known = load_rules().rules
    findings = [finding for check in checks for finding in _findings(check, known)]
    used = list(dict.fromkeys(finding.rule for finding in findings))
    driver = {
        "name": "edgekit",
        "semanticVersion": __version__,
        "rules": [_OWN.get(rule) or _rule(known[rule]) for rule in used],
    }
    places = {rule: index for index, rule in enumerate(used)}
    results = [_result(finding, places[finding.rule]) for finding in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _findings(check: Check, known: Mapping[str, Rule]) -> Iterator[Finding]:
    for problem in check.parse.problems:
        place = f" in {problem.place}" if problem.place else ""
        text = f"{problem.node} ({problem.operator}){place}: {problem.message}. Fix: {problem.fix}."
        yield Finding(check, problem.node, "node", PARSE, "error", text)
    if (parser := check.parser) is not None:
        for error in parser.problems:
            where = f"{error.node} ({error.operator}): " if error.node else ""
            text = f"{where}{error.message} ({parser.release})."
            yield Finding(check, error.node or check.model, "node", SECOND, "note", text)
    for layer in check.layers:
        verdict = layer.dla
        if not verdict.ok:
            for reason in verdict.reasons:
                text = f"{layer.name} ({layer.kind}): {reason.message}"
                fix = f" Fix: {reason.fix}." if reason.fix else ""
                level = _LEVELS[verdict.certainty]
                yield Finding(check, layer.name, "layer", reason.rule, level, f"{text}.{fix}")
        elif layer.dropped is not None and layer.dropped in known:
            rule = known[layer.dropped]
            text = f"{layer.name} ({layer.kind}): {rule.text}. Fix: {explained(rule).fix}."
            yield Finding(check, layer.name, "layer", rule.id, "note", text)
    for row, bucket in zip(bucket_rows(check.buckets), check.buckets, strict=True):
        facts = dict(zip(HEAD, row, strict=True))
        text = (
            f"Shape {facts['shape']}: engine {facts['engine']}, {facts['on DLA']} layers on the "
            f"DLA, loadables {facts['loadables']}, predicted latency {facts['latency']}, weights "
            f"{facts['weights']}.{f' {bucket.why}.' if bucket.why else ''}"
        )
        yield Finding(check, facts["shape"], "shape", SHAPE, "note", text)


def _result(finding: Finding, rule_index: int) -> dict[str, object]:
    check, name = finding.check, finding.name
    # not the text: code scanning must recognise the finding after a release with other words
    print_of = hashlib.sha256(f"{finding.rule}\0{name}\0{check.target}".encode())
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.level,
        "message": {"text": finding.text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(check.model)},
                    # a model has no lines, but code scanning shows no result without a line
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {"name": name, "fullyQualifiedName": name, "kind": finding.kind}
                ],
            }
        ],
        "partialFingerprints": {"primaryLocationLineHash": f"{print_of.hexdigest()[:16]}:1"},
        "properties": {
            "target": check.target,
            "precision": check.precision,
            "tensorrt": check.tensorrt,
        },
    }


def _uri(model: str) -> str:
    """Returns a path, relative if below the working directory, which code scanning requires."""
    if is_builtin(model):
        return quote(model, safe=":/")
    path = Path(model)
    if path.is_absolute():
        here = Path.cwd()
        if not path.is_relative_to(here):
            return path.as_uri()
        path = path.relative_to(here)
    return quote(os.path.normpath(path).replace(os.sep, "/"))


def _rule(rule: Rule) -> dict[str, object]:
    facts = explained(rule)
    sources = [f"{source.title} ({source.where})" for source in facts.sources]
    text = f"{rule.text}.\n\nFix: {facts.fix}.\n\nSource: {'; '.join(sources)}."
    lines = "\n".join(f"- {source}" for source in sources)
    link = next((match[0] for part in rule.source if (match := _PLACE.match(part.where))), "")
    return {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.text}."},
        "fullDescription": {
            "text": f"{rule.text}." + (f" Limit: {rule.limit}." * bool(rule.limit))
        },
        "help": {
            "text": text,
            "markdown": f"{rule.text}.\n\n**Fix:** {facts.fix}.\n\n**Sources:**\n\n{lines}\n",
        },
        "properties": {"certainty": rule.certainty, "tags": ["dla", rule.family]},
        **({"helpUri": f"https://{link}"} if link else {}),
    }
