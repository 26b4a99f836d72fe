"""Grouping into loadables: runs in graph order, equal batch, the slot limit, linear time."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.dla.judge import judge
from edgekit.dla.loadables import find_candidates
from edgekit.network.model import Layer, Network, Tensor
from edgekit.targets.loader import get
from tests.counted_work import lines_of
from tests.dla.one_layer import XAVIER
from tests.tries import tries


def graph(edges: dict[str, str], batch: dict[str, int] | None = None) -> Network:
    """Layers by name with the layers that they read, separated by blanks."""
    tensors, layers = {"in": Tensor("in", (1, 8, 4, 4), "float32")}, []
    for name, sources in edges.items():
        out = f"t:{name}"
        tensors[out] = Tensor(out, ((batch or {}).get(name, 1), 8, 4, 4), "float32")
        inputs = tuple(f"t:{s}" for s in sources.split()) or ("in",)
        layers.append(Layer(name, "ACTIVATION", "Relu", (name,), (name,), inputs, (out,)))
    return Network("g", tuple(layers), tensors, ("in",), (layers[-1].outputs[0],))


def grouped(
    network: Network, gpu: str = "", limit: int = 16, precision: str = "fp16"
) -> list[tuple[str, bool]]:
    ok = {layer.name: layer.name not in gpu.split() for layer in network.layers}
    return [("".join(c.layers), c.retained) for c in find_candidates(network, ok, limit, precision)]


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


def test_layers_after_a_gpu_layer_at_the_input_join_the_first_run() -> None:
    net = graph({"g": "", "a": "g", "b": "", "c": "a b"})
    assert grouped(net, "g") == [("abc", True)]


def test_only_one_batch_size_in_a_loadable() -> None:
    net = graph({"a": "", "b": "a", "c": "b", "d": "c"}, {"c": 2, "d": 2})
    assert grouped(net) == [("ab", True), ("cd", True)]
    # the builder cuts ("Segmenting subgraph due to mismatched batch size") and joins nothing again
    apart = graph({"a": "", "b": "", "c": "a"}, {"b": 4})
    assert grouped(apart) == [("a", True), ("b", True), ("c", True)]


def test_a_run_takes_in_nothing_that_comes_later() -> None:
    """k and v of every decoder layer read the encoder alone (Gemm_93 and Gemm_94, Gemm_112 and
    Gemm_113 of DETR): each pair is a candidate."""
    edges = {"k": "", "v": "", "G": "k v", "a": "G", "H": "a", "l": "", "w": "", "I": "l w a"}
    net = graph({**edges, "b": "I"})
    assert grouped(net, "G H I") == [("kv", True), ("alw", True), ("b", True)]
    rows = graph({**edges, "b": "I"}, {"k": 9, "v": 9, "l": 9, "w": 9})
    assert grouped(rows, "G H I") == [("kv", True), ("a", True), ("lw", True), ("b", True)]


def test_a_cut_for_the_batch_leaves_the_run_as_it_is() -> None:
    """q, then k and v of more rows, then what reads q over the GPU: the next run, not k's."""
    net = graph({"q": "", "k": "", "v": "", "G": "q", "m": "G", "n": ""}, {"k": 9, "v": 9})
    assert grouped(net, "G") == [("q", True), ("kv", True), ("mn", True)]


@pytest.mark.parametrize(
    ("precision", "rows", "expected"),
    [
        ("fp16", 9, ["qkv"]),
        ("int8", 9, ["qk", "v"]),
        ("int8", 1, ["qkv"]),
        ("fp16", 1, ["qkv"]),
    ],
)
def test_products_of_rows_join_in_int8_where_they_read_one_tensor(
    precision: str, rows: int, expected: list[str]
) -> None:
    """q and k read one tensor through reshapes of their own, v another."""
    edges = {"X": "", "Y": "", "R": "X", "S": "X", "q": "R", "k": "S", "v": "Y"}
    net = graph(edges, dict.fromkeys("qkv", rows))
    layers = tuple(
        replace(x, kind="SHUFFLE")
        if x.name in "RS"
        else replace(x, params={"gemm": True})
        if x.name in "qkv"
        else x
        for x in net.layers
    )
    found = grouped(replace(net, layers=layers), "X Y R S", precision=precision)
    assert [names for names, _ in found] == expected


def test_the_largest_are_retained_and_ties_go_in_graph_order() -> None:
    net = graph({"a": "", "G": "a", "b": "G", "c": "b", "H": "c", "d": "H", "I": "d", "e": "I"})
    assert grouped(net, "G H I", 2) == [("a", True), ("bc", True), ("d", False), ("e", False)]
    assert grouped(net, "G H I", 0) == [(n, False) for n in ("a", "bc", "d", "e")]
    assert [retained for _, retained in grouped(net, "G H I", 9)] == [True] * 4


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


@settings(max_examples=tries(300))
@given(random_graphs())
def test_groups_are_convex_disjoint_complete_and_can_be_run_in_an_order(
    case: tuple[Network, dict[str, bool]],
) -> None:
    network, ok = case
    found = find_candidates(network, ok, 16)
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


@settings(max_examples=tries(150))
@given(random_graphs())
def test_candidates_follow_each_other_among_the_layers_of_the_dla(
    case: tuple[Network, dict[str, bool]],
) -> None:
    """Two that touch differ in batch size, or the second needs the first over the GPU."""
    network, ok = case
    found = find_candidates(network, ok, 16)
    allowed = [layer.name for layer in network.layers if ok[layer.name]]
    assert [name for group in found for name in group.layers] == allowed
    above = reach(network)
    shapes = {la.name: network.tensors[la.outputs[0]].shape[0] for la in network.layers}
    for before, after in pairwise(found):
        earlier = set().union(*(g.layers for g in found[: found.index(after)]))
        over_gpu = {name for name, others in above.items() if not ok[name] and others & earlier}
        changes = shapes[before.layers[0]] != shapes[after.layers[0]]
        assert changes or above[after.layers[0]] & over_gpu


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
        lines.append(lines_of(lambda: find_candidates(network, ok, 16)))  # noqa: B023
        assert sum(group.retained for group in find_candidates(network, ok, 16)) == 16
    assert lines[1] < 12 * lines[0]


def test_a_core_holds_eight_loadables_before_tensorrt_8() -> None:
    whole = graph({f"l{i}": f"l{i - 1}" if i else "" for i in range(40)})
    mixed = [replace(la, kind="TOPK") if i % 2 else la for i, la in enumerate(whole.layers)]
    network = replace(whole, layers=tuple(mixed))
    for release, retained in (("7.1", 8), ("8.0", 16)):
        found = judge(network, get(XAVIER), precision="fp16", tensorrt=release)
        assert len(found.candidates) == 20
        assert sum(group.retained for group in found.candidates) == retained
