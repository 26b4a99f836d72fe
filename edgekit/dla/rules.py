"""All rules under ``dla/`` with the operator matrix, read once and looked up by id.

``rule_range`` and ``rule_exceptions`` give the numbers of single rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import TypeVar

from edgekit.dla.checks import Check
from edgekit.dla.fact_files import format_facts, memory_facts, sparsity_facts
from edgekit.dla.rule_files import (
    ANY_KIND,
    Operator,
    OperatorsFile,
    Reconstruction,
    ReconstructionFile,
    Rule,
    RuleFile,
    RuleSource,
    UnlistedOperator,
    sources_file,
)
from edgekit.errors import DataError
from edgekit.knowledge import data_folder, read_document
from edgekit.targets.releases import parse_version
from edgekit_device.protocol.codec import document
from edgekit_device.versions import Version

_Row = TypeVar("_Row", Rule, Operator)
# files without rules of layers
_EXCLUDED = (
    "builder_messages",
    "disputes",
    "formats",
    "guide",
    "int8",
    "memory",
    "operators",
    "reconstruction",
    "sparsity",
)


@document(frozen=True, eq=False)
class Rules:
    """The facts under ``dla/`` that verdicts need.

    Attributes:
        rules: By id.
        operators: The matrix's rows by ONNX operator.
        titles: Titles of the families by name.
        meanings: Explanations of the matrix's words.
        matrix_sources: The matrix's sources.
        kinds: Layer kinds that some rule names.
        allowed_by: Titles of the sources according to which a DLA runs it, by layer kind and
            function ("*": any other).
        unlisted: ONNX operators without a row that rules name.
        oldest: The oldest TensorRT release with a guide among the sources.
        newest: The newest TensorRT release in the sources.
    """

    rules: Mapping[str, Rule]
    operators: Mapping[str, Operator]
    titles: Mapping[str, str]
    meanings: Mapping[str, str]
    matrix_sources: tuple[RuleSource, ...]
    kinds: frozenset[str]
    allowed_by: Mapping[str, Mapping[str, tuple[str, ...]]]
    unlisted: Mapping[str, UnlistedOperator]
    oldest: str
    newest: str

    def sources_allowing(self, kind: str, function: object) -> tuple[str, ...]:
        """Returns the titles of the sources according to which a DLA runs such a layer."""
        known = self.allowed_by.get(kind, {})
        return known.get(str(function), known.get(ANY_KIND, ()))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules.values())


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """Reads and compiles all rule files.

    Raises:
        DataError: edgekit's own files are wrong: a file is not YAML (code "data.yaml"), has an
            unknown key or a wrong value, or a rule is defined twice (code "data.invalid").
    """
    folder = data_folder("dla")
    found: list[Rule] = []
    titles: dict[str, str] = {}
    allowed: dict[str, dict[str, tuple[str, ...]]] = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem.startswith("_") or path.stem in _EXCLUDED:
            continue
        file = read_document(RuleFile, path)
        titles[file.family] = file.title
        for function, named in file.allowed_by.items():
            for kind in file.kinds:
                allowed.setdefault(kind, {})[function] = tuple(source.title for source in named)
        found += (_complete_rule(rule, file.kinds) for rule in file.rules)
        found += (_complete_rule(rule, file.kinds, "note") for rule in file.notes)
    matrix = read_document(OperatorsFile, folder / "operators.yaml")
    found += (_complete_rule(rule, ()) for rule in matrix.rules)
    # no layer breaks these rules (a tensor or a loadable may), so they are notes for a layer
    memory, formats, sparsity = memory_facts(), format_facts(), sparsity_facts()
    for rules in (memory.rules, formats.rules, sparsity.rules, sparsity.notes):
        found += (_complete_rule(rule, (), "note") for rule in rules)
    titles |= {
        "operators": "Operator matrix",
        "memory": "Memory",
        "formats": "Tensor formats",
        "sparsity": "Structured sparsity",
    }
    by_id = {rule.id: rule for rule in found}
    if len(by_id) < len(found):
        twice = sorted({rule.id for rule in found if by_id[rule.id] is not rule})
        raise DataError(f"rules are listed twice: {', '.join(twice)}", where=str(folder))
    written = read_document(ReconstructionFile, folder / "reconstruction.yaml").operators
    return Rules(
        rules=by_id,
        operators={
            name: _complete_operator(name, row, matrix, written.get(name))
            for name, row in matrix.operators.items()
        },
        titles=titles,
        meanings=matrix.meanings,
        matrix_sources=matrix.source,
        kinds=frozenset(kind for rule in found for kind in rule.kinds) - {ANY_KIND},
        allowed_by=allowed,
        unlisted=matrix.unlisted,
        oldest=sources_file().oldest_tensorrt,
        newest=sources_file().newest_tensorrt,
    )


def loadables_per_core(version: Version | None = None) -> int:
    """Returns the number of loadables of a DLA core, for a TensorRT release or the newest."""
    fact = memory_facts().loadables_per_core
    if version is None:
        return fact.value
    older = [count for first, count in fact.before.items() if version < parse_version(first)]
    # limits of several releases may apply: the oldest release's is the smallest
    return min([fact.value, *older])


def _complete_rule(rule: Rule, kinds: tuple[str, ...], effect: str = "") -> Rule:
    """Returns a rule of a file, completed by the file's other keys; its own effect if empty."""
    effect = effect or rule.effect
    return _copy_with(
        rule,
        kinds=rule.kinds or kinds,
        effect=effect,
        limit=rule.limit or (rule.check.limit if rule.check else ""),
        certainty=rule.certainty or ("disputed" if effect == "risk" else "certain"),
    )


def _copy_with(item: _Row, **changes: object) -> _Row:
    """Returns a copy with changes; ``dataclasses.replace`` would take a third of the read time."""
    # the class is frozen and has no slots, so its dict can be filled directly
    made = object.__new__(type(item))
    vars(made).update(vars(item), **changes)
    return made


def _complete_operator(
    name: str, row: Operator, matrix: OperatorsFile, written: Reconstruction | None
) -> Operator:
    fix = row.note
    # operators that TensorRT does not expose can be composed only in the software below it
    below = row.trt == "rfe" and row.dla == "reconstruction"
    if below:
        fix = matrix.below.format(note=f"{fix[:1].lower()}{fix[1:]}")
    rewritten = written is not None and bool(written.rewrites) and not written.by_hand
    if written is not None and rewritten:
        fix = matrix.written.format(rewrites=", ".join(written.rewrites))
        fix += f"; {written.but}" if written.but else ""
    if written is not None and written.by_hand:
        fix = matrix.by_hand.format(way=written.by_hand)
    if row.recipe:
        fix = f"{fix}; " if fix else ""
        fix += f"NVIDIA's recipe: {matrix.recipes}{row.recipe}"
    return _copy_with(row, name=name, fix=fix, mends=not below, rewritten=rewritten)


@cache
def rule_range(rule: str) -> tuple[int, int]:
    """Returns the smallest and the largest value of a rule's range.

    It is the range that the rule allows; for a rule that excludes a range
    ("deconvolution.square_kernel"), the excluded range. ``rule_exceptions`` returns further allowed
    values.

    Args:
        rule: Identifier of a rule with a range, as "pooling.window".

    Raises:
        KeyError: No rule of that name has a range.
    """
    for check in _checks(rule):
        if check.span is not None:
            return check.span
    raise KeyError(rule)


@cache
def rule_exceptions(rule: str) -> frozenset[tuple[int, ...]]:
    """Returns the values that a rule allows one by one, besides its range.

    Args:
        rule: Identifier of a rule, as "deconvolution.kernel".

    Raises:
        KeyError: There is no rule of that name.
    """
    return frozenset(item for check in _checks(rule) for item in check.listed)


def _checks(rule: str) -> tuple[Check, ...]:
    """Returns the check of a rule, or its alternatives."""
    check = load_rules().rules[rule].check
    return () if check is None else check.parts or (check,)
