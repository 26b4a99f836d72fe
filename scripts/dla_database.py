"""The DLA support database, ``docs/data/dla-support.json``: one definition of document and schema.

Everything in it comes from the files under ``dla/`` and ``targets/``, read by the code that
``check`` and ``explain`` use.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from onnx import TensorProto, defs, helper
from pydantic import Field

from edgekit.dla import guide
from edgekit.dla.checks import Facts
from edgekit.dla.explanation import ExplainedOperator, explain, explained
from edgekit.dla.judge import reads_qdq
from edgekit.dla.rule_files import PRECISIONS, Rule, sources_file
from edgekit.dla.rules import Rules, load_rules
from edgekit.documents import OpenDocument
from edgekit.knowledge import data_folder, read_knowledge
from edgekit.network.loading.load import canonical
from edgekit.network.lowering.layers import layers as layers_of
from edgekit.targets import loader
from edgekit.targets.board import GENERATIONS, JetPack, Target, shared_sources
from edgekit.targets.jetpack import jetpacks
from edgekit.targets.releases import parse_version, supports_dla
from edgekit_device.protocol.codec import write

SCHEMA: Final = "edgekit.dla-support/1"
# by the quantity that a rule's check compares
_UNITS = {
    "batches": "images",
    "bytes": "bytes",
    "cbuf_banks": "banks",
    "cbuf_banks_fp16": "banks",
    "channels": "channels",
    "dilation": "elements",
    "full_window_weights": "weights",
    "groups": "groups",
    "input_ranks": "dimensions",
    "kernel": "elements",
    "non_batch_dims": "elements",
    "operands": "inputs",
    "out_maps": "maps",
    "pads": "elements",
    "spatial_dims": "dimensions",
    "square_kernel": "elements",
    "square_stride": "elements",
    "stride": "elements",
    "strides": "elements",
    "weights": "bytes",
    "window": "elements",
}
_DECIDED_BY_OPERATOR = frozenset(
    {"activation", "comparison", "elementwise", "pooling", "reduce", "shuffle", "unary"}
)
_OPSET = 13
# attributes that an operator must have, with values that any rule allows
_NEEDED = {"blocksize": 2, "kernel_shape": [2, 2]}
_ADDRESS = re.compile(r"[a-z0-9.-]+\.[a-z]{2,3}/[^\s,:()]+")
_MATRIX_SAYS_NO = "operators.not_exposed"
_SINCE = "operators.since"


class Source(OpenDocument):
    """The source of a fact."""

    title: str
    where: str = Field(description="document, section or file, with the commit where known")
    url: str | None


class Side(OpenDocument):
    """A statement that some sources of a dispute make."""

    says: str
    sources: list[str]


class Dispute(OpenDocument):
    """A question that sources leave open or contradict; only a board settles it."""

    text: str
    sources: list[str] = Field(description="of all sides")
    sides: list[Side] = Field(description="the statement of each side; at least two")


class Limit(OpenDocument):
    """The values that a rule allows."""

    text: str
    of: str | None = Field(description="the value that is compared; null for several at once")
    operator: str | None = Field(
        description="range, outside, in, not_in, equal, not_equal, at_most, at_least, below or "
        "whole"
    )
    value: Any = Field(description="the value that it is compared with")
    unit: str | None = Field(description="null where the value has none")


class Fix(OpenDocument):
    """The remedy in one case."""

    for_: str = Field(alias="for")
    fix: str


class RuleRow(OpenDocument):
    """One restriction, or a note that no layer is checked for."""

    id: str
    family: str
    text: str
    effect: Literal["refuse", "risk", "note"] = Field(
        description="refuse: the layer runs on the GPU; risk: it stays on the DLA, unsure"
    )
    limit: Limit | None
    layers: list[str] = Field(description="TensorRT layer types; * is all")
    generations: list[str] = Field(description="1.0 is Xavier's DLA, 2.0 is Orin's")
    precisions: list[str]
    since: str | None = Field(description="first TensorRT release that it holds for")
    until: str | None = Field(description="first TensorRT release that it no longer holds for")
    fix: str
    fixes: list[Fix] = Field(description="by case, where the fix differs; empty otherwise")
    sources: list[str] = Field(description="keys of `sources`")
    dispute: Dispute | None


class Support(OpenDocument):
    """The support of an operator on one DLA generation, in one precision, for some releases."""

    generation: str
    precision: str
    tensorrt: list[str]
    status: Literal["runs", "limits", "disputed", "composed", "folded", "never"] = Field(
        description="runs: only the rules for every layer (`general`) apply; limits: within its "
        "rules; disputed: a source denies it; composed: TensorRT's parser writes several layers, "
        "each with its own rules; folded: computed at build time, no layer; never: GPU"
    )
    decided_by: list[str] = Field(description="rules that refuse or dispute it")


class OperatorRow(OpenDocument):
    """An ONNX operator."""

    operator: str
    layers: list[str] = Field(description="TensorRT layer types; empty where the DLA has none")
    since: str | None = Field(
        description="first TensorRT release with the operator on the DLA, where known"
    )
    matrix: str | None = Field(description="NVIDIA's operator matrix; null: no row")
    verdict: str = Field(description="the verdict of `edgekit check`")
    rules: list[str]
    instead: str = Field(description="what to do where it does not run; may be empty")
    support: list[Support]
    sources: list[str]
    dispute: Dispute | None


class DrivenBy(OpenDocument):
    """A range of TensorRT releases; ``until`` is not included."""

    since: str
    until: str | None


class NotStated(OpenDocument):
    """The first TensorRT release of which no source states whether it supports a DLA."""

    since: str
    why: str


class BoardRow(OpenDocument):
    """A module."""

    board: str = Field(description="edgekit's name for it, as for --target")
    title: str
    dla_cores: int
    generation: str | None
    tensorrt: list[DrivenBy] = Field(description="releases that support its DLA")
    not_stated: NotStated | None
    sources: list[str]


class ReleaseRow(OpenDocument):
    """JetPack releases that bring the same TensorRT."""

    jetpack: list[str]
    l4t: list[str] = Field(description="empty where not publicly known")
    tensorrt: str | None = Field(description="null where not publicly known")
    also: list[str] = Field(description="TensorRT releases that other sources name instead")
    note: str
    sources: list[str]


class MatrixRow(OpenDocument):
    """Whether a module has a DLA that a JetPack release can use."""

    board: str
    jetpack: str
    tensorrt: str | None
    has_dla: bool
    usable: bool | None = Field(description="null where its TensorRT is not publicly known")
    int8: Literal["implicit", "qdq", "none", "unknown"] = Field(
        description="implicit: a calibration cache, no Q/DQ nodes; qdq: Q/DQ nodes only"
    )
    why: str
    instead: str = Field(description="what to do for a DLA; empty where it is usable")
    rule: str | None = Field(description="the rule that refuses the DLA")
    sources: list[str]


class DlaSupport(OpenDocument):
    """The support of the DLA of NVIDIA's Jetson modules, rule by rule, with sources."""

    schema_: Literal["edgekit.dla-support/1"] = Field(alias="schema")
    version: str = Field(description="of the data; raised whenever a fact changes")
    date: str = Field(description="of that version")
    digest: str = Field(description="SHA-256 of all that follows, to see a change")
    families: dict[str, str] = Field(description="titles of the rules' families")
    rules: list[RuleRow]
    operators: list[OperatorRow]
    boards: list[BoardRow]
    releases: list[ReleaseRow]
    matrix: list[MatrixRow]
    sources: dict[str, Source]


@cache
def database() -> DlaSupport:
    """Returns the database."""
    known = load_rules()
    origins = read_knowledge(data_folder("dla") / "_sources.yaml")
    boards = [loader.get(name) for name in loader.names()]
    operators = [_operator(known, name) for name in sorted((*known.operators, *known.unlisted))]
    found = DlaSupport(
        schema=SCHEMA,
        version=origins["version"],
        date=origins["date"],
        digest="",
        families=dict(known.titles),
        rules=[_rule(rule) for rule in known],
        operators=operators,
        boards=[_board(board) for board in boards],
        releases=_releases(boards),
        matrix=[row for board in boards for row in _matrix(known, board)],
        sources=_sources(),
    )
    about = {"schema_", "version", "date", "digest"}
    text = json.dumps(found.model_dump(by_alias=True, exclude=about), sort_keys=True)
    return found.model_copy(update={"digest": hashlib.sha256(text.encode()).hexdigest()})


def search_page() -> str:
    """Returns the page that searches the database: one HTML file that asks for no other."""
    template = (Path(__file__).parent / "dla_search.html").read_text(encoding="utf-8")
    data = json.dumps(database().to_json(), ensure_ascii=False, separators=(",", ":"))
    return template.replace("DATA", data.replace("</", "<\\/"), 1)


def _sources() -> dict[str, Source]:
    rows = {}
    for key, row in sources_file().sources.items():
        rows[f"dla/{key}"] = _source(row.title, row.where)
    for key, text in shared_sources().items():
        rows[f"targets/{key}"] = _source(text, text)
    return rows


def _source(title: str, where: str) -> Source:
    address = _ADDRESS.search(where)
    return Source(title=title, where=where, url=f"https://{address[0]}" if address else None)


@cache
def _keys() -> Mapping[str, str]:
    return {row.title: f"dla/{key}" for key, row in sources_file().sources.items()}


def _board_sources(keys: Iterable[str]) -> list[str]:
    return [f"targets/{key}" for key in keys]


@cache
def _checks() -> Mapping[str, Mapping[str, Any]]:
    """The checks of all rules as they are written."""
    rows = [
        row
        for path in sorted(data_folder("dla").glob("*.yaml"))
        for row in read_knowledge(path).get("rules", ())
    ]
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        pool = {"of": "bytes", "at_most": row["bytes"]} if "bytes" in row else {}
        found[row["id"]] = row.get("check") or pool
    return found


def _rule(rule: Rule) -> RuleRow:
    shown = explained(rule)
    sources = [_keys()[title] for title in rule.sources]
    disputed = rule.certainty == "disputed"
    return RuleRow(
        id=rule.id,
        family=rule.family,
        text=rule.text,
        effect=rule.effect,  # type: ignore[arg-type]
        limit=_limit(rule),
        layers=list(rule.kinds),
        generations=list(rule.generations),
        precisions=list(rule.precisions),
        since=rule.since,
        until=rule.until,
        fix=shown.fix,
        fixes=[Fix.model_validate(fix) for fix in write(shown.fixes)],
        sources=sources,
        dispute=_dispute(rule.text, _sides()[rule.id]) if disputed else None,
    )


@cache
def _sides() -> Mapping[str, list[Side]]:
    """The sides of each disputed rule."""
    return {
        rule: [
            Side(says=side.says, sources=[f"dla/{key}" for key in side.source]) for side in sides
        ]
        for rule, sides in guide.disputes().items()
    }


def _dispute(text: str, sides: list[Side]) -> Dispute:
    sources = list(dict.fromkeys(key for side in sides for key in side.sources))
    return Dispute(text=text, sources=sources, sides=sides)


def _limit(rule: Rule) -> Limit | None:
    check = _checks().get(rule.id, {})
    names = [key for key in check if key != "of"]
    if not rule.limit and not names:
        return None
    simple = "of" in check and len(names) == 1
    of = check["of"] if simple else None
    value = check[names[0]] if simple else None
    numbers = value if isinstance(value, list) else [value]
    counted = all(isinstance(n, (int, float)) and not isinstance(n, bool) for n in numbers)
    return Limit(
        text=rule.limit,
        of=of,
        operator=names[0] if simple else None,
        value=value,
        unit=_UNITS.get(of) if of and counted else None,
    )


def _operator(known: Rules, name: str) -> OperatorRow:
    shown = explain(name)
    assert isinstance(shown, ExplainedOperator)
    row = known.operators.get(name)
    layers = list(dict.fromkeys(_kind(family) for family in shown.families))
    matrix_sources = [_keys()[source.title] for source in shown.sources]
    support = list(_support(known, name, layers, shown.rules))
    return OperatorRow(
        operator=name,
        layers=layers,
        since=shown.since,
        matrix=shown.text if row else None,
        verdict=shown.verdict,
        rules=list(shown.rules),
        instead=shown.fix,
        support=support,
        sources=matrix_sources,
        dispute=_operator_dispute(known, name, layers, support),
    )


def _operator_dispute(
    known: Rules, name: str, layers: list[str], support: list[Support]
) -> Dispute | None:
    """Returns the dispute about an operator in some release, precision and generation."""
    ids = [rule for state in support if state.status == "disputed" for rule in state.decided_by]
    if not ids:
        return None
    rule = _MATRIX_SAYS_NO if _MATRIX_SAYS_NO in ids else ids[0]
    sides = _sides()[rule]
    function = _decided_by_operator(name).get("function", "")
    allowing = dict.fromkeys(
        title for kind in layers for title in known.sources_allowing(kind, function)
    )
    if rule == _MATRIX_SAYS_NO and allowing:
        # of its own layers the sources are known
        says = f"{', '.join(layers)} layers run"
        sides = [Side(says=says, sources=[_keys()[title] for title in allowing]), *sides[1:]]
    return _dispute(known.rules[rule].text, sides)


def _kind(family: str) -> str:
    """The layer type that a family is about; its rules may be for others besides."""
    return str(read_knowledge(data_folder("dla") / f"{family}.yaml")["kinds"][0])


@cache
def _decided_by_operator(name: str) -> Mapping[str, str]:
    """Properties of the layer that TensorRT's parser writes for an operator, for any attributes.

    Of the families whose layers the operator alone decides; empty for the others.
    """
    known = load_rules()
    row = known.operators.get(name)
    families = row.families if row else known.unlisted[name].families
    if not _DECIDED_BY_OPERATOR.intersection(families):
        return {}
    schema = defs.get_schema(name, _OPSET, "")
    given = schema.inputs[: max(schema.min_input, 1)]
    variadic = given[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    if any({"tensor(float)", "tensor(bool)"}.isdisjoint(parameter.types) for parameter in given):
        return {}  # its second input is a shape or a list of axes
    names = [f"x{index}" for index in range(2 if variadic else len(given))]
    dtype = TensorProto.FLOAT if "tensor(float)" in given[0].types else TensorProto.BOOL
    needed = {
        key: _NEEDED[key] for key, attribute in schema.attributes.items() if attribute.required
    }
    node = helper.make_node(name, names, ["y"], name="n")
    node.attribute.extend(helper.make_attribute(key, value) for key, value in needed.items())
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(name, dtype, [1, 8, 16, 16]) for name in names],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = 8
    [layer, *_] = layers_of(canonical(model, None)).layers
    return {key: layer.params[key] for key in ("function", "mode") if key in layer.params}


@cache
def _driving_releases() -> Mapping[str, tuple[str, ...]]:
    """The TensorRT releases that support a DLA, oldest first, by its generation."""
    found: dict[str, set[str]] = {generation: set() for generation in GENERATIONS}
    for name in loader.names():
        board = loader.get(name)
        if board.dla.cores:
            releases = {release.tensorrt for release in jetpacks(board)} | {board.tensorrt}
            driving = {release for release in releases if release and supports_dla(board, release)}
            found[board.dla.generation] |= driving
    ordered = {}
    for generation, releases in found.items():
        # "10.3" of a board's file and JetPack's "10.3.0" are one release
        longest = {parse_version(release): release for release in sorted(releases, key=len)}
        ordered[generation] = tuple(longest[version] for version in sorted(longest))
    return ordered


def _support(known: Rules, name: str, layers: list[str], rules: Sequence[str]) -> Iterator[Support]:
    for generation, releases in _driving_releases().items():
        for precision in PRECISIONS:
            groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
            for release in releases:
                found = _status(known, name, layers, rules, (generation, precision, release))
                groups.setdefault(found, []).append(release)
            for (status, decided), driven in groups.items():
                yield Support(
                    generation=generation,
                    precision=precision,
                    tensorrt=driven,
                    status=status,  # type: ignore[arg-type]
                    decided_by=list(decided),
                )


def _status(
    known: Rules, name: str, layers: list[str], rules: Sequence[str], at: tuple[str, str, str]
) -> tuple[str, tuple[str, ...]]:
    generation, precision, release = at
    version, row = parse_version(release), known.operators.get(name)
    if row is not None:
        if row.settled_by:
            settled = known.rules[row.settled_by].holds_for("*", generation, version)
            return ("never", (row.settled_by,)) if settled else ("limits", ())
        if row.trt == "folded":
            return "folded", ()
        if row.since and version < parse_version(row.since):
            return "never", (_SINCE,)
        if row.composed:
            return "composed", ("operators.composed",)
    if not layers:
        if row is not None and row.trt == "native":
            return "folded", ()
        return "never", tuple(rule for rule in rules if rule.startswith("general."))
    in_force = [
        known.rules[rule_id] for rule_id in rules if precision in known.rules[rule_id].precisions
    ]
    facts = Facts(op=name, precision=precision, generation=generation)
    facts.update(_decided_by_operator(name))
    # by layer type: the rules in force with whether the operator breaks them
    verdicts = [
        [
            (rule, _breaks_rule(rule, Facts(facts, kind=kind)))
            for rule in in_force
            if rule.check is not None and rule.holds_for(kind, generation, version)
        ]
        for kind in layers
    ]
    refused = [
        next((rule.id for rule, broken in kind if broken and rule.effect == "refuse"), "")
        for kind in verdicts
    ]
    if all(refused):
        return "never", tuple(dict.fromkeys(refused))
    risks = tuple(
        rule.id for kind in verdicts for rule, broken in kind if broken and rule.effect == "risk"
    )
    if row is not None and row.trt != "native":
        risks = (_MATRIX_SAYS_NO, *risks)
    if risks:
        return "disputed", tuple(dict.fromkeys(risks))
    depends = any(
        broken is None and rule.effect == "refuse" for kind in verdicts for rule, broken in kind
    )
    return ("limits" if depends or any(refused) else "runs"), ()


def _breaks_rule(rule: Rule, facts: Facts) -> bool | None:
    """Returns True if an operator breaks a rule; None if its sizes and parameters decide."""
    try:
        applies = rule.when is None or rule.when(facts) is None
        return applies and rule.check is not None and rule.check(facts) is not None
    except KeyError:
        return None


def _board(board: Target) -> BoardRow:
    unstated = board.dla.tensorrt_unstated
    return BoardRow(
        board=board.name,
        title=board.title,
        dla_cores=board.dla.cores,
        generation=board.dla.generation or None,
        tensorrt=[
            DrivenBy(since=driven.since, until=driven.until) for driven in board.dla.tensorrt
        ],
        not_stated=NotStated(since=unstated.since, why=unstated.why) if unstated else None,
        sources=_board_sources(board.dla.source),
    )


def _releases(boards: list[Target]) -> list[ReleaseRow]:
    found = {release.versions: release for board in boards for release in jetpacks(board)}
    ordered = sorted(found.values(), key=lambda release: parse_version(release.versions[0]))
    return [
        ReleaseRow(
            jetpack=list(release.versions),
            l4t=list(release.l4t),
            tensorrt=release.tensorrt or None,
            also=list(release.also),
            note=release.note,
            sources=_board_sources(release.source),
        )
        for release in ordered
    ]


def _matrix(known: Rules, board: Target) -> Iterator[MatrixRow]:
    for release in jetpacks(board):
        usable, int8, why, rule = _usable(board, release)
        # the sources of the answer come first
        sources = [_keys()[title] for title in known.rules[rule].sources] if rule else []
        sources += _board_sources([*release.source, *board.dla.source])
        for version in release.versions:
            yield MatrixRow(
                board=board.name,
                jetpack=version,
                tensorrt=release.tensorrt or None,
                has_dla=board.dla.cores > 0,
                usable=usable,
                int8=int8,  # type: ignore[arg-type]
                why=why,
                instead="" if usable else _suggest_releases(known, board, release),
                rule=rule,
                sources=list(dict.fromkeys(sources)),
            )


def _usable(board: Target, release: JetPack) -> tuple[bool | None, str, str, str | None]:
    """Whether a release can use a board's DLA, how INT8 is given, why, and the refusing rule."""
    note = f" ({release.note})" if release.note else ""
    if not board.dla.cores:
        return False, "none", "This module has no DLA", "general.no_dla"
    if not release.tensorrt:
        why = f"The TensorRT version of this JetPack is unknown{note}"
        return None, "unknown", why, None
    if not supports_dla(board, release.tensorrt):
        why = f"TensorRT {release.tensorrt} does not support the DLA of this module{note}"
        return False, "none", why, "general.tensorrt"
    cores = f"{board.dla.cores} DLA core{'s' if board.dla.cores > 1 else ''}"
    driven = f"TensorRT {release.tensorrt} supports {cores}{note}"
    if reads_qdq(board, release.tensorrt):
        return True, "qdq", f"{driven}; INT8 from Q/DQ nodes in the model only", None
    return True, "implicit", f"{driven}; INT8 from a calibration cache, without Q/DQ nodes", None


def _suggest_releases(known: Rules, board: Target, release: JetPack) -> str:
    """Returns the nearest JetPack releases that support the DLA, the newer first."""
    if not board.dla.cores:
        return known.rules["general.no_dla"].fix
    known_releases = jetpacks(board)
    at = known_releases.index(release)
    driving = [
        release.tensorrt and supports_dla(board, release.tensorrt) for release in known_releases
    ]
    newer = next((index for index in range(at, len(driving)) if driving[index]), None)
    older = next((index for index in range(at, -1, -1) if driving[index]), None)
    named = []
    if newer is not None:
        later = " or later" if newer == len(driving) - 1 else ""
        named.append(f"update to {_release_name(known_releases[newer], later)}")
    if older is not None:
        named.append(f"use {_release_name(known_releases[older])}")
        if newer is None:
            named[-1] += "; no newer JetPack is known to support the DLA of this module"
    return ", or ".join(named)


def _release_name(release: JetPack, later: str = "") -> str:
    span = " to ".join(dict.fromkeys((release.versions[0], release.versions[-1])))
    return f"JetPack {span}{later} with TensorRT {release.tensorrt}"
