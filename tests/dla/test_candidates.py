"""Grouping into loadables: maximal convex runs, the slot limit, equal batch, linear time."""

import itertools
import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit import targets
from edgekit.dla import candidates, judge
from edgekit.network import Layer, Network, Tensor
from tests.counted_work import lines_of
from tests.dla.one_layer import XAVIER


def graph(edges: dict[str, str], batch: dict[str, int] | None = None) -> Network:
    """Layers by name with the layers that they read, separated by blanks."""
    tensors, layers = {"in": Tensor("in", (1, 8, 4, 4), "float32")}, []
    for name, sources in edges.items():
        out = f"t:{name}"
        tensors[out] = Tensor(out, ((batch or {}).get(name, 1), 8, 4, 4), "float32")
        inputs = tuple(f"t:{s}" for s in sources.split()) or ("in",)
        layers.append(Layer(name, "ACTIVATION", "Relu", (name,), (name,), inputs, (out,)))
    return Network("g", tuple(layers), tensors, ("in",), (layers[-1].outputs[0],))


def grouped(network: Network, gpu: str = "", limit: int = 16) -> list[tuple[str, bool]]:
    ok = {layer.name: layer.name not in gpu.split() for layer in network.layers}
    return [("".join(c.layers), c.kept) for c in candidates(network, ok, limit)]


def test_a_chain_is_cut_where_a_layer_is_on_the_gpu() -> None:
    chain = graph({"a": "", "b": "a", "c": "b", "d": "c", "e": "d"})
    assert grouped(chain) == [("abcde", True)]
    assert grouped(chain, "c") == [("ab", True), ("de", True)]
    assert grouped(chain, "a e") == [("bcd", True)]
    assert grouped(chain, "a b c d e") == []


def test_parallel_branches_are_one_candidate() -> None:
    """b1 and b2 share no tensor and no path (as Gemm_1, Gemm_2, Gemm_4 of DETR)."""
    net = graph({"g": "", "p": "g", "q": "g", "r": "g", "h": "p q r"})
    assert grouped(net, "g h") == [("pqr", True)]


def test_a_branch_over_the_gpu_does_not_rejoin_its_run() -> None:
    """x -> pool (GPU) -> excite -> product with x: the product cannot be in x's loadable."""
    net = graph({"x": "", "p": "x", "e": "p", "m": "x e", "y": "m"})
    assert grouped(net, "p") == [("x", True), ("emy", True)]


def test_layers_behind_a_gpu_layer_at_the_input_join_the_first_run() -> None:
    net = graph({"g": "", "a": "g", "b": "", "c": "a b"})
    assert grouped(net, "g") == [("abc", True)]


def test_only_one_batch_size_in_a_loadable() -> None:
    net = graph({"a": "", "b": "a", "c": "b", "d": "c"}, {"c": 2, "d": 2})
    assert grouped(net) == [("ab", True), ("cd", True)]
    apart = graph({"a": "", "b": "", "c": "a"}, {"b": 4})
    assert grouped(apart) == [("ac", True), ("b", True)]


def test_the_largest_are_kept_and_ties_go_in_graph_order() -> None:
    net = graph({"a": "", "G": "a", "b": "G", "c": "b", "H": "c", "d": "H", "I": "d", "e": "I"})
    assert grouped(net, "G H I", 2) == [("a", True), ("bc", True), ("d", False), ("e", False)]
    assert grouped(net, "G H I", 0) == [(n, False) for n in ("a", "bc", "d", "e")]
    assert [kept for _, kept in grouped(net, "G H I", 9)] == [True] * 4


@st.composite
def random_graphs(draw: st.DrawFn, most: int = 14) -> tuple[Network, dict[str, bool]]:
    count = draw(st.integers(2, most))
    names = [f"n{i:02}" for i in range(count)]
    edges, ok, batch = {}, {}, {}
    for index, name in enumerate(names):
        sources = draw(st.lists(st.sampled_from(names[:index]), max_size=3)) if index else []
        edges[name] = " ".join(dict.fromkeys(sources))
        ok[name] = draw(st.booleans())
        batch[name] = draw(st.sampled_from([1, 1, 1, 2]))
    return graph(edges, batch), ok


def reach(network: Network) -> dict[str, set[str]]:
    producers = network.producers()
    above: dict[str, set[str]] = {}
    for layer in network.layers:
        above[layer.name] = set()
        for name in layer.inputs:
            if name in producers:
                source = producers[name].name
                above[layer.name] |= {source} | above[source]
    return above


def convex(group: set[str], above: dict[str, set[str]]) -> bool:
    """No layer outside lies on a path between two layers inside."""
    return not any(
        above[outside] & group and any(outside in above[member] for member in group)
        for outside in above
        if outside not in group
    )


@settings(max_examples=300, deadline=None)
@given(random_graphs())
def test_groups_are_convex_disjoint_complete_and_can_be_run_in_an_order(
    case: tuple[Network, dict[str, bool]],
) -> None:
    network, ok = case
    found = candidates(network, ok, 16)
    above = reach(network)
    names = [name for group in found for name in group.layers]
    assert len(names) == len(set(names))
    assert set(names) == {name for name, allowed in ok.items() if allowed}
    shapes = {la.name: network.tensors[la.outputs[0]].shape[0] for la in network.layers}
    for group in found:
        assert convex(set(group.layers), above)
        assert len({shapes[name] for name in group.layers}) == 1
    # an order exists: between two groups no paths run both ways
    for first in found:
        for second in found:
            if first is not second:
                there = any(above[b] & set(first.layers) for b in second.layers)
                back = any(above[a] & set(second.layers) for a in first.layers)
                assert not (there and back)


def runnable(groups: list[set[str]], network: Network) -> bool:
    """Whether groups and single layers can run one after the other: no cycle among them."""
    unit = {name: index for index, group in enumerate(groups) for name in group}
    producers = network.producers()
    waits: dict[object, set[object]] = {}
    for layer in network.layers:
        here = unit.get(layer.name, layer.name)
        above = {producers[n].name for n in layer.inputs if n in producers}
        waits.setdefault(here, set()).update(unit.get(n, n) for n in above)
        waits[here].discard(here)
    while waits:
        ready = {one for one, others in waits.items() if not others & waits.keys()}
        if not ready:
            return False
        waits = {one: others for one, others in waits.items() if one not in ready}
    return True


@settings(max_examples=300, deadline=None)
@given(random_graphs(8))
def test_groups_are_maximal(case: tuple[Network, dict[str, bool]]) -> None:
    """No two groups of one batch size could be one and all still run."""
    network, ok = case
    shapes = {la.name: network.tensors[la.outputs[0]].shape[0] for la in network.layers}
    found = [set(group.layers) for group in candidates(network, ok, 16)]
    assert runnable(found, network)
    for index, first in enumerate(found):
        for second in found[index + 1 :]:
            if shapes[min(first)] == shapes[min(second)]:
                rest = [group for group in found if group not in (first, second)]
                assert not runnable([first | second, *rest], network)


@settings(max_examples=150, deadline=None)
@given(random_graphs(8))
def test_with_one_batch_size_there_are_as_few_groups_as_possible(
    case: tuple[Network, dict[str, bool]],
) -> None:
    """Brute force: every way to spread the layers over fewer convex groups fails to run."""
    network, ok = case
    flat = {n: Tensor(n, (1, 8, 4, 4), "float32") for n in network.tensors}
    network = Network("g", network.layers, flat, network.inputs, network.outputs)
    found = candidates(network, ok, 16)
    names = [layer.name for layer in network.layers if ok[layer.name]]
    if len(found) < 2 or len(names) > 6:
        return
    for spread in itertools.product(range(len(found) - 1), repeat=len(names)):
        groups = [{n for n, at in zip(names, spread, strict=True) if at == i} for i in set(spread)]
        assert not runnable(groups, network)


def test_another_batch_size_between_does_not_keep_layers_apart() -> None:
    """a needs nothing and c needs x over the GPU: a waits for x and goes with c."""
    net = graph({"a": "", "x": "", "g": "x", "y": "g", "c": "y"}, {"x": 2, "y": 2})
    assert grouped(net, "g") == [("ac", True), ("x", True), ("y", True)]
    crossed = graph({"a": "", "p": "a", "q": "", "c": "q"}, {"p": 2, "q": 2})
    assert len(grouped(crossed)) == 3


def test_work_is_linear_in_layers() -> None:
    lines = []
    for count in (500, 4000):
        rng = random.Random(1)
        names = [f"n{i}" for i in range(count)]
        edges = {
            name: " ".join({names[max(0, i - rng.randint(1, 9))] for _ in range(3)} - {name})
            for i, name in enumerate(names)
        }
        network = graph(edges)
        ok = {name: rng.random() < 0.8 for name in names}
        lines.append(lines_of(lambda: candidates(network, ok, 16)))  # noqa: B023
        assert sum(group.kept for group in candidates(network, ok, 16)) == 16
    assert lines[1] < 12 * lines[0]


def test_a_core_holds_eight_loadables_before_tensorrt_8() -> None:
    whole = graph({f"l{i}": f"l{i - 1}" if i else "" for i in range(40)})
    mixed = [replace(la, kind="TOPK") if i % 2 else la for i, la in enumerate(whole.layers)]
    network = replace(whole, layers=tuple(mixed))
    for release, kept in (("7.1", 8), ("8.0", 16)):
        found = judge(network, targets.get(XAVIER), precision="fp16", tensorrt=release)
        assert len(found.candidates) == 20
        assert sum(group.kept for group in found.candidates) == kept
