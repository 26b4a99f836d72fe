"""``memory_needed``: the memory that a bundle needs, before it is loaded; the command memory."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Union

from edgekit_device.board.inventory import memory
from edgekit_device.protocol.memory import MemoryNeed, memory_need
from edgekit_device.runtime.model import check_path
from edgekit_device.store.root import Root, default_root


def memory_needed(
    path: Union[str, "os.PathLike[str]"],
    *,
    allowed_signers: Union[str, "os.PathLike[str]", None] = None,
    trust_unsigned: bool = False,
) -> MemoryNeed:
    """Returns the memory that a bundle's engines need on this board, without loading them.

    Args:
        path: As in ``load``.
        allowed_signers: As in ``load``.
        trust_unsigned: As in ``load``.

    Raises:
        DeviceError: "bundle.*", "manifest.*" or "release.*".
    """
    signers = None if allowed_signers is None else Path(os.path.expanduser(allowed_signers))
    checked = check_path(Path(os.path.expanduser(path)), signers, trust_unsigned)
    return replace(memory_need(checked.manifest), available=memory(Path("/"))["available"])


def do_memory(root: Root, arguments: argparse.Namespace, stdin: BinaryIO) -> MemoryNeed:
    """Answers the memory that a bundle, a release or an app needs."""
    path = Path(getattr(arguments, "from"))
    signers = None if root.folder == default_root() else root.folder / "allowed_signers"
    return memory_needed(path, allowed_signers=signers, trust_unsigned=arguments.trust_unsigned)
