"""What every command that reads stdin needs: one bounded JSON document, and its error."""

from __future__ import annotations

from typing import Any, BinaryIO

from ._checks import parse_json
from ._errors import DeviceError

__all__ = ["protocol_error", "read_json"]


def read_json(stdin: BinaryIO, most: int) -> Any:
    """The one JSON document on stdin, of at most ``most`` bytes; "protocol.invalid"."""
    data = stdin.read(most + 1)
    if len(data) > most:
        raise protocol_error("more than {} bytes".format(most))
    return parse_json(data, "stdin", "protocol.invalid")


def protocol_error(message: str) -> DeviceError:
    """What is raised where the host does not keep to the protocol."""
    return DeviceError(
        message,
        code="protocol.invalid",
        where="stdin",
        hint="use the loader and the edgekit of the same version",
    )
