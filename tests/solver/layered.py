"""Random layered graphs as large as networks are: for tests of size and for benchmarks."""

from __future__ import annotations

import random

from edgekit.solver.problem import (
    OUTSIDE,
    Border,
    Cost,
    MemoryPool,
    Mode,
    PlacementProblem,
    Transfer,
)


def layered(
    seed: int,
    nodes: int,
    *,
    cores: int = 1,
    pool: bool = False,
    formats: bool = False,
    twins: bool = True,
) -> PlacementProblem:
    """Draws a graph in layers of one to four nodes, one node in ten on the GPU only.

    A node takes 90 us on the GPU in the median, on a core mostly half to twice as much and a fifth
    of the energy; a tensor 30 us to move; a loadable 15 us to start. ``pool``: a sixth of all
    weights fits into a loadable. ``formats``: every device has two tensor formats.
    """
    rng = random.Random(seed)
    names = ("GPU", *(f"DLA{core}" for core in range(cores)))
    kinds = (("linear", "chw32"), ("chw32", "hwc")) if formats else (("",), ("",))
    modes = [Mode(d, form, form) for d in range(cores + 1) for form in kinds[d > 0]]
    speed = [1.0] + [1.0 if twins else rng.uniform(0.8, 1.25) for _ in range(cores)]

    def cost(device: int, us: float, uj: float) -> Cost:
        return Cost(tuple(us * (r == device) for r in range(cores + 2)), uj)

    costs, needs = [], []
    for _ in range(nodes):
        gpu, ratio = rng.lognormvariate(4.5, 0.8), rng.lognormvariate(0.0, 0.5)
        fixed = rng.random() < 0.1
        other = {
            "": 1.0,
            "linear": 1.0,
            "chw32": rng.uniform(0.7, 1.2),
            "hwc": rng.uniform(0.9, 1.6),
        }
        row: list[Cost | None] = []
        for mode in modes:
            us = gpu * other[mode.reads]
            if mode.device:
                us *= ratio * speed[mode.device]
            able = not (mode.device and fixed)
            row.append(cost(mode.device, us, us * (0.1 if mode.device else 0.4)) if able else None)
        costs.append(tuple(row))
        needs.append(rng.lognormvariate(0.0, 1.0))
    users = _edges(rng, nodes)
    borders = []
    for producer in range(OUTSIDE, nodes):
        us = 10.0 + rng.lognormvariate(3.0, 0.7)
        pairs: dict[tuple[object, ...], set[tuple[int, int]]] = {}
        for i, a in enumerate(modes):
            for j, b in enumerate(modes):
                if a.writes != b.reads or (a.device > 0) != (b.device > 0):
                    key = (a.device > 0, a.writes, b.device > 0, b.reads)
                    pairs.setdefault(key, set()).add((i, j))
        transfers = tuple(
            Transfer(frozenset(found), (cost(0, us * (1 + 0.1 * n), 0.3 * us),))
            for n, found in enumerate(pairs.values())
        )
        ends = tuple(users[producer])
        borders.append(Border(producer, ends, transfers, output=producer >= 0 and not ends))
    return PlacementProblem(
        names,
        tuple(modes),
        tuple(costs),
        tuple(borders),
        (None, *(cost(1 + core, 15.0, 2.0) for core in range(cores))),
        max_loadables=16,
        pools=(MemoryPool("weights", sum(needs) / 6, tuple(needs)),) if pool else (),
    )


def _edges(rng: random.Random, nodes: int) -> dict[int, list[int]]:
    """Returns consumers by producer: of every node one or more in the layer before, some far."""
    layers: list[list[int]] = []
    v = 0
    while v < nodes:
        width = rng.randint(1, 4)
        layers.append(list(range(v, min(nodes, v + width))))
        v += width
    users: dict[int, list[int]] = {v: [] for v in range(OUTSIDE, nodes)}
    users[OUTSIDE] = list(layers[0])
    for i in range(1, len(layers)):
        for v in layers[i]:
            before = {rng.choice(layers[i - 1])}
            before |= {u for u in layers[i - 1] if rng.random() < 0.25}
            if i > 1 and rng.random() < 0.15:
                before.add(rng.choice(layers[rng.randrange(max(0, i - 6), i - 1)]))
            for u in sorted(before):
                users[u].append(v)
    return users
