"""Random problem documents, small enough for the brute force."""

from __future__ import annotations

import random

from tests.solver.document_brute import Json

__all__ = ["random_document"]


def random_document(rng: random.Random, objective: str) -> Json:
    """Returns a document of one or two small networks with some of the constraints."""
    cores = rng.randint(1, 2)
    devices = ["GPU"] * (rng.random() < 0.9) + [f"DLA{c}" for c in range(cores)]
    networks = []
    several = rng.random() < 0.35
    for number in range(2 if several else 1):
        count = rng.randint(1, 3) if several else rng.randint(2, 6 - cores)
        shuffled = list(range(count))
        rng.shuffle(shuffled)
        pairs = [
            [shuffled[i], shuffled[j]]
            for i in range(count)
            for j in range(i + 1, count)
            if rng.random() < 0.45
        ]
        net: Json = {"name": f"net{number}", "nodes": [_node(rng, i) for i in range(count)]}
        if rng.random() < 0.75:
            net["edges"] = pairs
        if rng.random() < 0.25:
            net["max_transitions"] = rng.randint(0, 3)
        if rng.random() < 0.25:
            net["contiguous"] = True
        networks.append(net)
    document: Json = {
        "schema": "edgekit.problem/1",
        "devices": devices,
        "networks": networks,
        "objective": objective,
    }
    if rng.random() < 0.5:
        document["transfer_on"] = rng.choice(["GPU", "delay"])
    if rng.random() < 0.6:
        document["loadable"] = {
            key: value
            for key, value in {
                "launch_us": rng.choice([0, 1.5]),
                "max": rng.randint(0, 3),
                "weight_bytes": rng.randint(6, 15),
            }.items()
            if rng.random() < 0.6
        }
    if rng.random() < 0.35:
        names = rng.sample(["energy_uj", "latency_us"], rng.randint(1, 2))
        document["bounds"] = {name: float(rng.randint(10, 60)) for name in names}
    return document


def _node(rng: random.Random, number: int) -> Json:
    kinds = rng.choice([["GPU", "DLA"], ["GPU", "DLA"], ["GPU", "DLA"], ["GPU"], ["DLA"]])
    node: Json = {
        "name": f"n{number}",
        "time_us": {k: round(rng.uniform(1, 12), rng.choice([0, 2])) for k in kinds},
    }
    if rng.random() < 0.8:
        node["energy_uj"] = {k: round(rng.uniform(1, 12), 1) for k in kinds}
    if rng.random() < 0.8:
        ways = ["GPU>DLA", "DLA>GPU", "DLA>DLA"]
        node["out_us"] = {w: round(rng.uniform(0, 4), 1) for w in ways if rng.random() < 0.8}
    if rng.random() < 0.7:
        node["weight_bytes"] = rng.randint(1, 7)
    return node
