"""Classes of documents behave as the standard library's frozen dataclasses."""

import copy
import dataclasses
import pickle

import pytest

from edgekit_device.protocol.codec import array, document, member, number, read, text, write


@document(frozen=True)
class Point:
    """A point."""

    x: float = member(number(0, 9))
    y: float = member(number(0, 9), default=1.0)
    names: tuple[str, ...] = member(array(text()), default=())
    seen: int = dataclasses.field(default=0, compare=False, repr=False)


@document(frozen=True)
class Named(Point):
    name: str = member(text(), absent="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", self.seen + 1)


@dataclasses.dataclass(frozen=True)
class Standard:
    x: float
    y: float = 1.0


def test_values_are_made_compared_and_shown_alike():
    assert Point(1.0) == Point(x=1.0, y=1.0, seen=7)
    assert Point(1.0) != Point(2.0)
    assert Point(1.0) != Named(1.0)
    assert hash(Point(1.0)) == hash(Point(1.0, seen=5))
    assert repr(Point(1.0)) == "Point(x=1.0, y=1.0, names=())"
    assert repr(Standard(1.0)) == "Standard(x=1.0, y=1.0)"
    assert Named(1.0, name="a").seen == 1
    assert dataclasses.replace(Named(1.0, name="a"), x=2.0) == Named(2.0, name="a")
    for copied in (copy.copy(Point(3.0)), pickle.loads(pickle.dumps(Point(3.0)))):
        assert copied == Point(3.0)
    assert write(read(Named, {"x": 2, "y": 3, "names": []})) == {"x": 2.0, "y": 3.0, "names": []}


@document(frozen=True, kw_only=True)
class Placed(Point):
    """Takes the fields of its base by place, and its own by keyword."""

    where: str = member(text())


def test_keywords_alone_are_of_the_class_itself():
    assert Placed(1.0, 2.0, where="here").y == 2.0
    with pytest.raises(TypeError, match="too many"):
        Placed(1.0, 2.0, (), 0, "here")


def test_values_do_not_change():
    for change in (lambda p: setattr(p, "x", 2.0), lambda p: delattr(p, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change(Point(1.0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Point, "missing arguments: x"),
        (lambda: Point(1.0, z=2), "z"),
        (lambda: Point(1.0, x=2.0), "repeated arguments: x"),
        (lambda: Point(1.0, 1.0, (), 0, 5), "too many"),
    ],
)
def test_wrong_arguments_are_refused(make, words):
    with pytest.raises(TypeError, match=words):
        make()
