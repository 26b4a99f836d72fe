"""That a rewritten network follows its weights."""

import numpy as np

from edgekit.rewriting.graph import RewriteGraph
from tests.rewriting.nets import rewrite_step


def applied(model, item):
    """The graph after ``item`` was applied wherever it matches."""
    graph = RewriteGraph(model)
    while True:
        steps = (rewrite_step(graph, item, at) for at in list(graph.nodes()))
        step = next((found for found in steps if found is not None), None)
        if step is None:
            return graph
        graph.apply(step)


def assert_refits(make, item):
    """Two sets of weights give the same recipes and the same constants beside them.

    ``make`` makes the model of a seed. What is neither differs by the models' weights only.
    """
    one, two = (applied(make(seed), item) for seed in (1, 2))
    written = [
        [(n.op, n.inputs, n.outputs, dict(n.attrs)) for n in graph.recipes().values()]
        for graph in (one, two)
    ]
    assert written[0] == written[1]
    assert written[0], "nothing was derived"
    assert list(one.brought()) == list(two.brought())
    for name, constant in one.brought().items():
        assert np.array_equal(constant.value, two.brought()[name].value), name
    derived = [n for n in one.recipes() if one.floats(n) and one.readers(n)]
    assert any(not np.array_equal(one.value(n), two.value(n)) for n in derived)
