"""The rules under ``dla/``: read once, compiled, looked up by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edgekit._data import data_folder
from edgekit._knowledge import read_knowledge
from edgekit.dla._checks import compile_check, limit_of
from edgekit.dla._rule import ANY_KIND, GENERATIONS, PRECISIONS, Operator, Rule, Way
from edgekit.dla._versions import Version, parse_version

__all__ = [
    "Rules",
    "format_facts",
    "load_rules",
    "loadables_per_core",
    "memory_facts",
    "sparsity_facts",
    "titles_of",
]

_RULES = "edgekit.dla/1"
# files of facts: a tensor, a loadable or nothing breaks their rules, so they are notes to a layer
_NOTED = {"memory": "Memory", "formats": "Tensor formats", "sparsity": "Structured sparsity"}
_EXCLUDED = ("builder_messages", "guide", "int8", "operators", "reconstruction", *_NOTED)


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Everything under ``dla/`` that verdicts need.

    Attributes:
        rules: By id.
        operators: The matrix's rows by ONNX operator.
        titles: Of the families, by name.
        meanings: What the matrix's words say, in ours.
        matrix_sources: Where the matrix is from: title and place.
        kinds: Layer kinds that some rule names.
        allowed_by: By layer kind and function ("*": any other), the titles of the sources that say
            a DLA has it.
        unlisted: ONNX operators without a row that rules name: their ``families`` and ``rules``.
        guide: The sentences of the guide's section 13.2 by the title of their part, as read.
        oldest: The oldest TensorRT release that a guide among the sources is about.
        newest: The newest TensorRT release that the sources speak of.
    """

    rules: Mapping[str, Rule]
    operators: Mapping[str, Operator]
    titles: Mapping[str, str]
    meanings: Mapping[str, str]
    matrix_sources: tuple[Mapping[str, str], ...]
    kinds: frozenset[str]
    allowed_by: Mapping[str, Mapping[str, tuple[str, ...]]]
    unlisted: Mapping[str, Mapping[str, list[str]]]
    guide: tuple[tuple[str, Mapping[str, Any]], ...]
    oldest: str
    newest: str

    def allowing(self, kind: str, function: object) -> tuple[str, ...]:
        """Returns the titles of the sources that say a DLA has such a layer."""
        known = self.allowed_by.get(kind, {})
        return known.get(str(function), known.get(ANY_KIND, ()))

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules.values())


@lru_cache(maxsize=1)
def load_rules() -> Rules:
    """Reads and compiles all rule files.

    Raises:
        ValueError: A file is of another schema, a rule stands twice, or a row cannot be compiled:
            edgekit's own files are wrong.
        DataError: A file is not YAML (code "data.yaml").
    """
    folder = data_folder("dla")
    origins = read_knowledge(folder / "_sources.yaml")
    sources = origins["sources"]
    rules: dict[str, Rule] = {}
    titles: dict[str, str] = {}
    allowed: dict[str, dict[str, tuple[str, ...]]] = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem.startswith("_") or path.stem in _EXCLUDED:
            continue
        document = read_knowledge(path)
        if document.get("schema") != _RULES:
            raise ValueError(f"{path} is no rule file of schema {_RULES}")
        titles[document["family"]] = document["title"]
        for function, keys in document.get("allowed_by", {}).items():
            for kind in document["kinds"]:
                named = tuple(sources[key]["title"] for key in keys)
                allowed.setdefault(kind, {})[function] = named
        for rule in _family(document, sources):
            if rule.id in rules:
                raise ValueError(f"{path}: rule {rule.id} stands twice")
            rules[rule.id] = rule
    matrix = read_knowledge(folder / "operators.yaml")
    titles["operators"] = "Operator matrix"
    for rule in _family({"family": "operators", "kinds": [], **matrix}, sources):
        rules[rule.id] = rule
    for name, title in _NOTED.items():
        document = read_knowledge(folder / f"{name}.yaml")
        notes = [*document["rules"], *document.get("notes", ())]
        titles[name] = title
        for rule in _family({"family": name, "kinds": [], "notes": notes}, sources):
            rules[rule.id] = rule
    kinds = frozenset(k for rule in rules.values() for k in rule.kinds) - {ANY_KIND}
    written = read_knowledge(folder / "reconstruction.yaml")["operators"]
    operators = {
        name: _operator(name, row, matrix, written.get(name, {}))
        for name, row in matrix["operators"].items()
    }
    origin = tuple(sources[key] for key in matrix["source"])
    return Rules(
        rules=rules,
        operators=operators,
        titles=titles,
        meanings=matrix["meanings"],
        matrix_sources=origin,
        kinds=kinds,
        allowed_by=allowed,
        unlisted=matrix["unlisted"],
        guide=tuple(
            (section["title"], sentence)
            for section in read_knowledge(folder / "guide.yaml")["sections"]
            for sentence in section["sentences"]
        ),
        oldest=origins["oldest_tensorrt"],
        newest=origins["newest_tensorrt"],
    )


@lru_cache(maxsize=1)
def memory_facts() -> Mapping[str, Any]:
    """Returns ``dla/memory.yaml``: pools, floors, paddings, the convolution buffer."""
    return _facts("memory")


def loadables_per_core(version: Version | None = None) -> int:
    """Returns how many loadables a DLA core holds: of a TensorRT release, or of the newest."""
    fact = memory_facts()["loadables_per_core"]
    if version is None:
        return int(fact["value"])
    older = [count for first, count in fact["before"].items() if version < parse_version(first)]
    return int(min([fact["value"], *older]))


@lru_cache(maxsize=1)
def format_facts() -> Mapping[str, Any]:
    """Returns ``dla/formats.yaml``: layouts, paddings, types and roles of the tensor formats."""
    return _facts("formats")


@lru_cache(maxsize=1)
def sparsity_facts() -> Mapping[str, Any]:
    """Returns ``dla/sparsity.yaml``: the pattern, its conditions, and what it is worth."""
    return _facts("sparsity")


def titles_of(keys: Iterable[str]) -> str:
    """Returns the titles of sources by their keys, as one text."""
    sources = read_knowledge(data_folder("dla") / "_sources.yaml")["sources"]
    return "; ".join(sources[key]["title"] for key in keys)


def _facts(name: str) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = read_knowledge(data_folder("dla") / f"{name}.yaml")
    return facts


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
        ways=tuple(_way(way) for way in row.get("ways", ())),
        sources=tuple(sources[key]["title"] for key in row["source"]),
        places=tuple(sources[key]["where"] for key in row["source"]),
        generations=tuple(row.get("generations", GENERATIONS)),
        precisions=tuple(row.get("precisions", PRECISIONS)),
        since=row.get("since"),
        until=row.get("until"),
        certainty=row.get("certainty", default),
        effect=effect,
        network=row.get("scope") == "network",
        found=row.get("found", ""),
        brief=bool(row.get("brief", False)),
        runs_in=row.get("runs_in", ""),
        needs_gpu=bool(row.get("needs_gpu", False)),
        operator_fix=bool(row.get("operator_fix", False)),
        mends=bool(row.get("mends", True)),
        when=compile_check(when) if when else None,
        check=compile_check(check, limit) if check else None,
        counts=compile_check(row["counts"]) if "counts" in row else None,
        warning=row.get("warning", ""),
        ties=row.get("ties"),
    )


def _way(way: Mapping[str, Any]) -> Way:
    return Way(compile_check(way["when"]), way["for"], way["fix"], bool(way.get("mends", True)))


def _operator(
    name: str, row: Mapping[str, Any], matrix: Mapping[str, Any], written: Mapping[str, Any]
) -> Operator:
    fix = row.get("note", "")
    rewrites = tuple(written.get("rewrites", ()))
    # what TensorRT does not expose can be expressed with others only in the software below it
    below = row["trt"] == "rfe" and row["dla"] == "reconstruction"
    if below:
        fix = matrix["below"].format(note=f"{fix[:1].lower()}{fix[1:]}")
    if rewrites:
        fix = matrix["written"].format(rewrites=", ".join(rewrites))
        fix += f"; {written['but']}" if "but" in written else ""
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
        mends=not below,
        settled_by=row.get("settled_by", ""),
    )
