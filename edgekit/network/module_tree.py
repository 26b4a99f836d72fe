"""A network's layers by PyTorch module: the totals of each module, and the lines of a tree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from edgekit.network.model import Layer, Network
from edgekit.network.module_names import enclosing_modules
from edgekit.text import listed
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import (
    choice,
    document,
    long_text,
    mapping,
    member,
    nullable,
)

#: The columns of ``tree_rows``.
HEAD = ("module", "class", "layers", "on", "µs", "why not on the DLA")
#: The columns that are aligned right.
RIGHT = ("layers", "µs")
#: The note on the times that a check's tree omits.
CHECK_TIMES = (
    "µs are predicted, without starting loadables, transitions and conversions, which belong to no "
    "module"
)
_RULES = 2
# deeper modules count for their ancestor at this depth: protects against malformed files
_DEEPEST = 16


@document(frozen=True, kw_only=True)
class ModuleTotals:
    """The totals of a PyTorch module, including its inner modules.

    Attributes:
        module: Its path ("layer1.0.conv1"); "" for the network.
        kind: Its class ("torch.nn.modules.conv.Conv2d"); "" if the file does not name it.
        layers: Number of layers.
        devices: Number of layers by device.
        macs: Multiply-accumulates for one inference.
        us: Microseconds of its layers in one inference; None if unknown.
        clock: Source of ``us``.
        rules: Number of layers by the rule that keeps them off the DLA; a layer may break several.
    """

    module: str = member(long_text)
    kind: str = member(long_text, absent="")
    layers: int = member(fields.count)
    devices: Mapping[str, int] = member(mapping(fields.count))
    macs: int = member(fields.count)
    us: float | None = member(nullable(fields.figure))
    clock: str = member(choice("predicted", "board-measured"), default="predicted")
    rules: Mapping[str, int] = member(mapping(fields.count, long_text), absent=dict)


@dataclass(frozen=True, slots=True)
class LayerPlace:
    """A layer's device, its time there, and the rules that keep it off the DLA."""

    device: str = ""
    us: float | None = None
    rules: Sequence[str] = ()


def module_totals(
    network: Network, places: Mapping[str, LayerPlace], measured: Mapping[str, float] | None = None
) -> tuple[ModuleTotals, ...]:
    """Returns a network's modules, each before those inside it; empty if its file names no modules.

    Args:
        network: The layer graph.
        places: The place of each layer by name; a layer without a place counts for no device.
        measured: Microseconds on the board by module path, for modules whose layers were all
            measured.
    """
    if network.modules is None:
        return ()
    inside: dict[str, dict[str, None]] = {"": {}}
    layers: Counter[str] = Counter()
    macs: Counter[str] = Counter()
    us: dict[str, float] = defaultdict(float)
    devices: dict[str, Counter[str]] = defaultdict(Counter)
    rules: dict[str, Counter[str]] = defaultdict(Counter)
    for layer in network.layers:
        around = modules_around(layer)
        for outer, inner in pairwise(around):
            inside[outer][inner] = None
            inside.setdefault(inner, {})
        place = places.get(layer.name, LayerPlace())
        for path in around:
            layers[path] += 1
            macs[path] += layer.macs
            devices[path].update([place.device] if place.device else ())
            rules[path].update(list(dict.fromkeys(place.rules)))
            if place.us is not None:
                us[path] += place.us
    known = measured or {}
    return tuple(
        ModuleTotals(
            module=path,
            kind=network.modules.classes.get(path, ""),
            layers=layers[path],
            devices=dict(sorted(devices[path].items())),
            macs=macs[path],
            us=known.get(path, us.get(path)),
            clock="board-measured" if path in known else "predicted",
            rules=dict(rules[path].most_common()),
        )
        for path in _outermost_first(inside)
    )


def layer_modules(network: Network | None) -> Mapping[str, str]:
    """Returns the module of each layer; empty if the network names no modules."""
    if network is None or network.modules is None:
        return {}
    return {layer.name: layer.module for layer in network.layers}


def modules_around(layer: Layer) -> list[str]:
    """Returns the modules that a layer counts for, from the network ("") inwards."""
    return enclosing_modules(layer.module)[: _DEEPEST + 1]


def _outermost_first(inside: Mapping[str, Mapping[str, None]]) -> list[str]:
    found: list[str] = []
    waiting = [""]
    while waiting:
        path = waiting.pop()
        found.append(path)
        waiting += reversed(list(inside[path]))
    return found


@dataclass
class _Branch:
    """The modules of a line: a single module, or equal numbered modules of a list."""

    name: str
    modules: list[ModuleTotals]
    inner: list[_Branch]
    open: bool = False

    @property
    def layers(self) -> int:
        return sum(module.layers for module in self.modules)

    @property
    def devices(self) -> Counter[str]:
        return _sum_counts([module.devices for module in self.modules])

    @property
    def rules(self) -> Counter[str]:
        return _sum_counts([module.rules for module in self.modules])

    @property
    def us(self) -> float | None:
        times = [module.us for module in self.modules if module.us is not None]
        return sum(times) if times else None

    @property
    def mixed(self) -> bool:
        """True if its layers differ in device or in the rules that keep them off the DLA."""
        return len(self.devices) > 1 or len(self.rules) > 1


def _sum_counts(counts: Sequence[Mapping[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for count in counts:
        found.update(count)
    return found


def tree_rows(modules: Sequence[ModuleTotals], most: int | None = None) -> list[dict[str, str]]:
    """Returns the lines of the tree of modules as texts by column of ``HEAD``.

    A module whose layers are all on one device for the same reason is a single line; any other
    module is opened, level by level. Equal numbered modules of a class share a line named by their
    glob ("blocks.*"). The layers of an opened module outside its inner modules have the line
    "(itself)".

    Args:
        modules: The result of ``module_totals``, or a module from it with its inner modules.
        most: Maximum number of lines, unless the first level has more; None opens all.
    """
    if not modules:
        return []
    children: dict[str, list[ModuleTotals]] = defaultdict(list)
    for module in modules[1:]:
        children[module.module.rpartition(".")[0]].append(module)
    root = _Branch(modules[0].module, [modules[0]], [])
    level, lines = [root], 1
    while level:
        following = []
        for branch in level:
            branch.inner = _inner_branches(branch, children)
            more = len(branch.inner)
            if more and (branch is root or most is None or lines + more <= most):
                branch.open, lines = True, lines + more + bool(_rest_of_branch(branch))
                # a module that only wraps another has nothing to show itself
                wrapped = more == 1 and not _rest_of_branch(branch)
                following += [item for item in branch.inner if wrapped or item.mixed]
        level = following
    return list(_tree_lines(root, 0))


def _inner_branches(
    branch: _Branch, children: Mapping[str, Sequence[ModuleTotals]]
) -> list[_Branch]:
    """Returns the modules inside a branch as branches; for equal modules, those common to all."""
    by_name: dict[str, list[ModuleTotals]] = {}
    for outer in branch.modules:
        for child in children.get(outer.module, ()):
            by_name.setdefault(child.module.rpartition(".")[2], []).append(child)
    # the modules of this line differ inside, so no inner line is true of all
    if any(len(found) < len(branch.modules) for found in by_name.values()):
        return []
    inside = f"{branch.name}." if branch.name else ""
    numbered = [name for name in by_name if name.isdigit()]
    alike = {
        (totals.kind, totals.layers, *totals.devices.items(), *totals.rules.items())
        for name in numbered
        for totals in by_name[name]
    }
    # without classes, as from the legacy exporter, equal counts do not prove equal modules
    if len(numbered) > 1 and len(numbered) == len(by_name) and len(alike) == 1:
        every = [item for found in by_name.values() for item in found]
        return (
            [_Branch(f"{inside}*", every, [])]
            if every[0].kind
            else _branches_by_name(by_name, inside)
        )
    return _branches_by_name(by_name, inside)


def _branches_by_name(by_name: Mapping[str, list[ModuleTotals]], inside: str) -> list[_Branch]:
    return [_Branch(f"{inside}{name}", found, []) for name, found in by_name.items()]


def _rest_of_branch(branch: _Branch) -> _Branch | None:
    """Returns the layers of an opened branch outside its inner modules; None if there are none."""
    within = [module for inner in branch.inner for module in inner.modules]
    layers = branch.layers - sum(totals.layers for totals in within)
    if not layers:
        return None
    # a measured time must not be subtracted from a predicted time
    alike = len({module.clock for module in (*branch.modules, *within)}) == 1
    times = branch.us - sum(totals.us or 0.0 for totals in within) if branch.us and alike else None
    rest = ModuleTotals(
        module=branch.name,
        layers=layers,
        devices=branch.devices - _sum_counts([totals.devices for totals in within]),
        macs=0,
        us=None if times is None else max(times, 0.0),
        rules=branch.rules - _sum_counts([totals.rules for totals in within]),
    )
    return _Branch("(itself)", [rest], [])


def _tree_lines(branch: _Branch, depth: int) -> list[dict[str, str]]:
    devices = [
        f"{name} {n:,}" if len(branch.devices) > 1 else name for name, n in branch.devices.items()
    ]
    rules = [f"{rule} ({n:,})" if n > 1 else rule for rule, n in branch.rules.most_common()]
    cells = (
        "  " * depth + (branch.name or "(the network)"),
        branch.modules[0].kind.rpartition(".")[2],
        f"{branch.layers:,}",
        ", ".join(devices),
        "" if branch.us is None else f"{branch.us:,.1f}",
        listed(rules, _RULES),
    )
    lines = [dict(zip(HEAD, cells, strict=True))]
    if branch.open:
        rest = _rest_of_branch(branch)
        for inner in [*branch.inner, *([rest] if rest else ())]:
            lines += _tree_lines(inner, depth + 1)
    return lines
