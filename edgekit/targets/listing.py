"""All boards as a list."""

from __future__ import annotations

from edgekit.removed import FormerDict
from edgekit.targets.loader import get, names
from edgekit_device.protocol.codec import (
    array,
    choice,
    document,
    integer,
    long_text,
    member,
    records,
)


@document(frozen=True)
class ListedTarget:
    """A board.

    Attributes:
        name: Its name for ``--target``.
        title: NVIDIA's name.
        dla_cores: DLA cores, 0 to 2.
        dla_generation: Their generation, "1.0" or "2.0"; empty without a DLA.
        tensorrt: Its usual TensorRT release.
        power_modes: NVIDIA's names.
    """

    name: str = member(long_text)
    title: str = member(long_text)
    dla_cores: int = member(integer(0, 64))
    dla_generation: str = member(long_text)
    tensorrt: str = member(long_text)
    power_modes: tuple[str, ...] = member(array(long_text))


@document(frozen=True)
class Targets(FormerDict):
    """An ``edgekit.targets/1``."""

    targets: tuple[ListedTarget, ...] = member(records(ListedTarget))
    schema: str = member(choice("edgekit.targets/1"), default="edgekit.targets/1")


def list_targets() -> Targets:
    """Returns the boards that edgekit knows."""
    return Targets(
        tuple(
            ListedTarget(
                name=board.name,
                title=board.title,
                dla_cores=board.dla.cores,
                dla_generation=board.dla.generation,
                tensorrt=board.tensorrt,
                power_modes=tuple(board.power_modes),
            )
            for board in map(get, names())
        )
    )
