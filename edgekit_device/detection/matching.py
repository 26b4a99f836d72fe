"""How many objects two runs of a detector have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence

from edgekit_device.detection.detect import detect
from edgekit_device.detection.head import Head
from edgekit_device.detection.nms import overlaps
from edgekit_device.detection.results import Array, Found
from edgekit_device.protocol import fields
from edgekit_device.protocol.codec import document, member
from edgekit_device.protocol.detection import Options

#: Intersection over union from which two boxes are one object's.
SAME = 0.5


@dataclass(frozen=True)
class Detection:
    """How a network's outputs become objects.

    Attributes:
        head: How they are decoded.
        options: Which objects are kept.
    """

    head: Head
    options: Options

    def objects(self, outputs: Mapping[str, Array]) -> List[List[Found]]:
        """Returns the objects of each frame.

        Args:
            outputs: The raw maps by name.

        Raises:
            DeviceError: "head.outputs": a raw map is missing.
        """
        return detect(self.head, outputs, self.options)


@document(frozen=True)
class MatchedBoxes:
    """The objects of FP32 and of a build.

    Attributes:
        expected: How many FP32 finds.
        found: How many the build finds.
        matched: Those that both find: of the same class and text, with an intersection over union
            of at least 0.5.
    """

    expected: int = member(fields.count)
    found: int = member(fields.count)
    matched: int = member(fields.count)

    @property
    def share(self) -> float:
        """The F1 score, 0 to 1: twice the matched over all that either finds; 1 if none does."""
        either = self.expected + self.found
        return 2 * self.matched / either if either else 1.0

    def __str__(self) -> str:
        return "{} of {} objects of FP32, and {} others".format(
            self.matched, self.expected, self.found - self.matched
        )


class Boxes:
    """Counts the objects that a build has in common with FP32, over several inferences.

    Args:
        options: Which objects are kept.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._expected = self._found = self._matched = 0

    def add(self, expected: Sequence[Sequence[Found]], found: Sequence[Sequence[Found]]) -> None:
        """Takes in the objects of frames; those with a lower score than the least are left out.

        Args:
            expected: FP32's, the best first.
            found: The build's.
        """
        for frames in zip(expected, found):  # noqa: B905 (Python 3.8)
            theirs, mine = (self._kept(one) for one in frames)
            self._expected += len(theirs)
            self._found += len(mine)
            self._matched += common(theirs, mine)

    def _kept(self, objects: Sequence[Found]) -> List[Found]:
        least = self._options.score
        return [one for one in objects if one.score > least][: self._options.most]

    def counted(self) -> MatchedBoxes:
        """Returns what was counted."""
        return MatchedBoxes(self._expected, self._found, self._matched)


def common(expected: Sequence[Found], found: Sequence[Found]) -> int:
    """Returns how many objects are in both: each of ``found``, the best first, takes the one of its
    class and text that it overlaps most, if that is enough and no other has it.
    """
    import numpy as np

    by_kind: Dict[object, List[Found]] = {}
    for one in expected:
        by_kind.setdefault((one.number, one.text), []).append(one)
    boxes = {kind: np.array([one.box for one in each]) for kind, each in by_kind.items()}
    count = 0
    for one in sorted(found, key=lambda one: -one.score):
        kind = one.number, one.text
        if not len(boxes.get(kind, ())):
            continue
        shared = overlaps(np.array(one.box), boxes[kind])
        best = int(shared.argmax())
        if shared[best] >= SAME:
            boxes[kind] = np.delete(boxes[kind], best, axis=0)
            count += 1
    return count
