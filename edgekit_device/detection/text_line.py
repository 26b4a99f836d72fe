"""The text of a line from the classes along it, the output of a recogniser trained with CTC.

The best class of each step counts, repeats count once, and the blank (class 0) is dropped.
"""

from __future__ import annotations

from typing import Dict, List, Mapping

from edgekit_device.detection.arrays import namespace, on_host, softmax
from edgekit_device.detection.head import TextLineHead
from edgekit_device.detection.results import Array, Candidates

PROBABILITIES = "probabilities"
"""The tensor that ``decode`` returns: [batch, steps, characters + 1]."""


def decode(part: TextLineHead, maps: Mapping[str, Array]) -> Dict[str, Array]:
    """Returns the probability of each class at each step."""
    value = maps[part.rows]
    return {PROBABILITIES: softmax(value, 2) if part.softmax else value}


def candidates(part: TextLineHead, tensors: Mapping[str, Array]) -> List[Candidates]:
    """Returns a text per frame, whose box is the whole input; none for an empty line.

    The score is the mean probability of the steps that give a character.
    """
    rows = tensors[PROBABILITIES]
    height, width = part.size
    best, sure = on_host(rows.argmax(axis=2)), on_host(rows.max(axis=2))
    xp = namespace(best)
    kept = best != 0
    # compared with the step before: a character that is repeated after a blank counts twice
    kept[:, 1:] &= best[:, 1:] != best[:, :-1]
    found = []
    for classes, probability in ((b[k], s[k]) for b, s, k in zip(best, sure, kept)):  # noqa: B905
        lines = min(len(classes), 1)
        found.append(
            Candidates(
                xp.array([[0, 0, width, height]] * lines, xp.float32).reshape(-1, 4),
                probability.mean().reshape(1, 1) if lines else xp.zeros((0, 1), xp.float32),
                texts=("".join(part.characters[symbol - 1] for symbol in classes.tolist()),)
                * lines,
                suppress=False,
            )
        )
    return found
