"""The rules under ``dla/``: read once, compiled, looked up by id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.dla._checks import Check, compile_check, limit_of
from edgekit.dla._versions import Version, parse_version
from edgekit.errors import UsageError

__all__ = ["Operator", "Rule", "Rules", "explain", "load_rules", "memory_facts"]

ANY_KIND = "*"
GENERATIONS = ("1.0", "2.0")
PRECISIONS = ("fp16", "int8")
_RULES = "edgekit.dla/1"
_EXCLUDED = ("builder_messages", "operators", "memory")


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One restriction.

    Attributes:
        id: Stable identifier, for example "convolution.kernel".
        family: The file that it stands in.
        text: The restriction in one sentence.
        kinds: Layer kinds it holds for; "*" is all.
        exempt: Layer kinds it does not hold for.
        limit: The limit as people read it; empty where it is part of the text.
        fix: What a user can do.
        sources: Titles of the documents it comes from.
        generations: DLA generations it holds for.
        precisions: Precisions of the layer it holds for.
        since: First TensorRT release it holds for, or None.
        until: First TensorRT release it no longer holds for, or None.
        certainty: "certain", or "disputed" where the sources are silent or disagree.
        effect: "refuse", "risk" (allowed, but unsure) or "note" (not checked on a layer).
        network: Holds for the network as a whole, not layer by layer.
        operator_fix: The operator matrix may know a better fix.
        when: The rule applies only where this holds.
        check: The compiled restriction; None for a note.
    """

    id: str
    family: str
    text: str
    kinds: tuple[str, ...]
    exempt: tuple[str, ...]
    limit: str
    fix: str
    sources: tuple[str, ...]
    generations: tuple[str, ...]
    precisions: tuple[str, ...]
    since: str | None
    until: str | None
    certainty: str
    effect: str
    network: bool
    operator_fix: bool
    when: Check | None
    check: Check | None

    def holds_for(self, kind: str, generation: str, version: Version) -> bool:
        """Whether the rule is in force for a layer kind, DLA generation and TensorRT release."""
        if self.check is None or kind in self.exempt:
            return False
        if kind not in self.kinds and ANY_KIND not in self.kinds:
            return False
        if generation and generation not in self.generations:
            return False
        if self.since is not None and version < parse_version(self.since):
            return False
        return self.until is None or version < parse_version(self.until)

    def to_json(self) -> dict[str, Any]:
        """Returns what a person wants to know of the rule, as plain values."""
        return {
            "id": self.id,
            "family": self.family,
            "text": self.text,
            "limit": self.limit,
            "fix": self.fix,
            "source": "; ".join(self.sources),
            "certainty": self.certainty,
            "effect": self.effect,
            "kinds": list(self.kinds),
            "generations": list(self.generations),
            "precisions": list(self.precisions),
            "since": self.since,
            "until": self.until,
        }


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the operator matrix: what TensorRT and the DLA software have for an ONNX operator.

    ``trt`` and ``dla`` are "native", "reconstruction", "rfe" or "folded"; ``fix`` is what NVIDIA
    says to do instead, empty when it says nothing.
    """

    name: str
    trt: str
    dla: str
    since: str
    dla_since: str
    families: tuple[str, ...]
    composed: bool
    fix: str


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Everything under ``dla/`` that verdicts need."""

    rules: Mapping[str, Rule]
    operators: Mapping[str, Operator]
    titles: Mapping[str, str]
    kinds: frozenset[str]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules.values())


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """Reads and compiles all rule files."""
    folder = data_folder("dla")
    sources = read_knowledge(folder / "_sources.yaml")["sources"]
    rules: dict[str, Rule] = {}
    titles: dict[str, str] = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem.startswith("_") or path.stem in _EXCLUDED:
            continue
        document = read_knowledge(path)
        if document.get("schema") != _RULES:
            raise ValueError(f"{path} is no rule file of schema {_RULES}")
        titles[document["family"]] = document["title"]
        for rule in _family(document, sources):
            if rule.id in rules:
                raise ValueError(f"{path}: rule {rule.id} stands twice")
            rules[rule.id] = rule
    matrix = read_knowledge(folder / "operators.yaml")
    titles["operators"] = "Operator matrix"
    for rule in _family({"family": "operators", "kinds": [], **matrix}, sources):
        rules[rule.id] = rule
    limits = read_knowledge(folder / "memory.yaml")["limits"]
    titles["memory"] = "Memory"
    for rule in _family({"family": "memory", "kinds": [], "notes": limits}, sources):
        rules[rule.id] = rule
    kinds = frozenset(k for rule in rules.values() for k in rule.kinds) - {ANY_KIND}
    operators = {name: _operator(name, row, matrix) for name, row in matrix["operators"].items()}
    return Rules(rules, operators, titles, kinds)


@lru_cache(maxsize=1)
def memory_facts() -> Mapping[str, Any]:
    """Returns ``dla/memory.yaml``: pools, floors, paddings, the convolution buffer."""
    facts: Mapping[str, Any] = read_knowledge(data_folder("dla") / "memory.yaml")
    return facts


def explain(rule_id: str) -> dict[str, Any]:
    """Returns the rule called ``rule_id``: text, limit, fix, source and when it holds.

    Raises:
        UsageError: There is no such rule (code ``rule.unknown``).
    """
    rules = load_rules().rules
    if rule_id in rules:
        return rules[rule_id].to_json()
    from difflib import get_close_matches

    near = get_close_matches(rule_id, rules, n=3, cutoff=0.6)
    raise UsageError(
        f"unknown rule {rule_id!r}",
        code="rule.unknown",
        where=rule_id,
        hint=f"did you mean {' or '.join(near)}?" if near else "`check` prints the rules' ids",
    )


def _family(document: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[Rule]:
    family, kinds = document["family"], tuple(document["kinds"])
    for row in document.get("rules", ()):
        yield _rule(family, kinds, row, sources, row.get("effect", "refuse"))
    for row in document.get("notes", ()):
        yield _rule(family, kinds, row, sources, "note")


def _rule(
    family: str,
    kinds: tuple[str, ...],
    row: Mapping[str, Any],
    sources: Mapping[str, Any],
    effect: str,
) -> Rule:
    check = row.get("check")
    limit = str(row.get("limit") or limit_of(check or {}))
    when = row.get("when")
    default = "disputed" if effect == "risk" else "certain"
    return Rule(
        id=row["id"],
        family=family,
        text=row["text"],
        kinds=tuple(row.get("kinds", kinds)),
        exempt=tuple(row.get("except", ())),
        limit=limit,
        fix=row.get("fix", ""),
        sources=tuple(sources[key]["title"] for key in row["source"]),
        generations=tuple(row.get("generations", GENERATIONS)),
        precisions=tuple(row.get("precisions", PRECISIONS)),
        since=row.get("since"),
        until=row.get("until"),
        certainty=row.get("certainty", default),
        effect=effect,
        network=row.get("scope") == "network",
        operator_fix=bool(row.get("operator_fix", False)),
        when=compile_check(when) if when else None,
        check=compile_check(check, limit) if check else None,
    )


def _operator(name: str, row: Mapping[str, Any], matrix: Mapping[str, Any]) -> Operator:
    fix = row.get("note", "")
    if "recipe" in row:
        fix = f"{fix}; " if fix else ""
        fix += f"NVIDIA's recipe: {matrix['recipes']}{row['recipe']}"
    return Operator(
        name=name,
        trt=row["trt"],
        dla=row["dla"],
        since=row.get("since", ""),
        dla_since=row.get("dla_since", ""),
        families=tuple(row.get("families", ())),
        composed=bool(row.get("composed", False)),
        fix=fix,
    )
