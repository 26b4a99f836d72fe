"""Grouping into loadables: maximal convex runs, the slot limit, equal batch, linear time."""

import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla import candidates
from edgekit.network import Layer, Network, Tensor


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
def random_graphs(draw: st.DrawFn) -> tuple[Network, dict[str, bool]]:
    count = draw(st.integers(2, 14))
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


@settings(max_examples=150, deadline=None)
@given(random_graphs())
def test_groups_are_maximal(case: tuple[Network, dict[str, bool]]) -> None:
    """With one batch size no two groups could be one."""
    network, ok = case
    flat = {n: Tensor(n, (1, 8, 4, 4), "float32") for n in network.tensors}
    network = Network("g", network.layers, flat, network.inputs, network.outputs)
    above = reach(network)
    found = [set(group.layers) for group in candidates(network, ok, 16)]
    for index, first in enumerate(found):
        for second in found[index + 1 :]:
            assert not convex(first | second, above)


def test_ten_thousand_layers_take_about_a_second_at_most() -> None:
    rng = random.Random(1)
    names = [f"n{i}" for i in range(10_000)]
    edges = {
        name: " ".join({names[max(0, i - rng.randint(1, 9))] for _ in range(3)} - {name})
        for i, name in enumerate(names)
    }
    network = graph(edges)
    ok = {name: rng.random() < 0.8 for name in names}
    start = time.perf_counter()
    found = candidates(network, ok, 16)
    assert time.perf_counter() - start < 2
    assert sum(group.kept for group in found) == 16
