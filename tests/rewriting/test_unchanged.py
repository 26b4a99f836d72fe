"""A search asks again only where something changed."""

from collections import Counter

from edgekit.rewriting.engine.search import Unchanged
from edgekit.rewriting.graph import RewriteGraph
from edgekit.rewriting.step import step_at
from tests.rewriting.made_up import run
from tests.rewriting.nets import Toy, net, node


class Looks(Toy):
    """Looks at the nodes on both sides and never matches; counts."""

    name = "looks"
    operators = ("Relu", "Neg", "Abs", "HardSwish")

    def __init__(self):
        self.seen = Counter()

    def match(self, graph, at):
        self.seen[at.name] += 1
        graph.producer(at.inputs[0])
        graph.only_reader(at.outputs[0])


class Plain(Toy):
    """HardSwish -> Relu or a constant: wrong, and proved by nobody here."""

    name = "plain"
    operators = ("HardSwish",)
    enabling = True

    def __init__(self, recipe=False):
        self.recipe = recipe

    def replace(self, graph, nodes, new):
        (at,) = nodes
        if self.recipe:
            zero, shape = new.constant(0.0), new.constant([1, 4, 3, 3])
            new.node("Expand", [zero, shape], output=at.outputs[0])
        else:
            new.node("Relu", at.inputs, output=at.outputs[0], name=at.name)


def line(*ops):
    tensors = ["x", *(f"t{i}" for i in range(1, len(ops))), "y"]
    nodes = [node(op, tensors[i], tensors[i + 1], f"n{i}") for i, op in enumerate(ops)]
    return net(nodes, {"x": (1, 4, 3, 3)}, ["y"], opset=14)


def after(recipe=False):
    """The nodes of a line that are asked again once its HardSwish was replaced."""
    graph, looks = RewriteGraph(line("Abs", "Abs", "HardSwish", "Abs", "Abs")), Looks()
    done = Unchanged(graph)
    for at in graph.nodes():
        done.begin()
        looks.match(graph, at)
        done.add(at)
    assert all(at in done for at in graph.nodes())
    done.begin()
    step = step_at(graph, Plain(recipe), graph.node("n2"))
    graph.apply(step)
    done.touch(step)
    return [at.name for at in graph.nodes() if at not in done]


def test_the_neighbours_of_what_changed_are_tried_again():
    assert after() == ["n1", "n2", "n3"]


def test_all_are_tried_again_once_an_activation_is_a_constant():
    assert after(recipe=True) == ["n0", "n1", "n3", "n4"]


def test_a_search_tries_once_where_nothing_changes(monkeypatch):
    looks = Looks()
    run(monkeypatch, line(*["Relu", "Neg"] * 4), looks)
    assert set(looks.seen.values()) == {1}
    assert len(looks.seen) == 8
