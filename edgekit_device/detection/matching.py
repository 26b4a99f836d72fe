"""The number of objects that two runs of a detector have in common."""

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

#: Smallest intersection over union of two boxes of the same object.
SAME = 0.5


@dataclass(frozen=True)
class Detection:
    """The detection of objects in a network's outputs.

    Attributes:
        head: The head that decodes the outputs.
        options: Limits for the objects that are kept.
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
        expected: Number of objects that FP32 finds.
        found: Number of objects that the build finds.
        matched: Number of objects that both find: of the same class and text, with an intersection
            over union of at least 0.5.
    """

    expected: int = member(fields.count)
    found: int = member(fields.count)
    matched: int = member(fields.count)

    @property
    def share(self) -> float:
        """The F1 score, 0 to 1: 2 * matched / (expected + found); 1 without objects."""
        either = self.expected + self.found
        return 2 * self.matched / either if either else 1.0

    def __str__(self) -> str:
        return "{} of {} objects of FP32, and {} others".format(
            self.matched, self.expected, self.found - self.matched
        )


class Boxes:
    """Counts the objects that a build has in common with FP32, over several inferences.

    Args:
        options: Limits for the objects that are kept.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._expected = self._found = self._matched = 0

    def add(self, expected: Sequence[Sequence[Found]], found: Sequence[Sequence[Found]]) -> None:
        """Adds the objects of frames, without those below the smallest score.

        Args:
            expected: FP32's objects, the best first.
            found: The build's objects.
        """
        for frames in zip(expected, found):  # noqa: B905 (Python 3.8)
            theirs, mine = (
                [found for found in objects if found.score > self._options.score][
                    : self._options.most
                ]
                for objects in frames
            )
            self._expected += len(theirs)
            self._found += len(mine)
            self._matched += count_common(theirs, mine)

    def result(self) -> MatchedBoxes:
        """Returns the counts."""
        return MatchedBoxes(self._expected, self._found, self._matched)


def count_common(expected: Sequence[Found], found: Sequence[Found]) -> int:
    """Returns the number of objects in both: each of ``found``, the best first, takes the object of
    its class and text with the largest overlap, if that is enough and it is not taken yet.
    """
    import numpy as np

    by_kind: Dict[object, List[Found]] = {}
    for detected in expected:
        by_kind.setdefault((detected.number, detected.text), []).append(detected)
    boxes = {kind: np.array([detected.box for detected in each]) for kind, each in by_kind.items()}
    count = 0
    for detected in sorted(found, key=lambda detected: -detected.score):
        kind = detected.number, detected.text
        if not len(boxes.get(kind, ())):
            continue
        shared = overlaps(np.array(detected.box), boxes[kind])
        best = int(shared.argmax())
        if shared[best] >= SAME:
            # removed: an object of FP32 matches once
            boxes[kind] = np.delete(boxes[kind], best, axis=0)
            count += 1
    return count
