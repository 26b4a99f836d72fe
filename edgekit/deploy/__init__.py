"""The deploy floor: boards over SSH, releases, and edgekit's own board for those who have none.

``open_board`` connects, ``install`` puts a bundle on the board; the rest of the loader's commands
are methods of the ``BoardClient`` that ``open_board`` gives.
"""

from edgekit._callable import make_callable
from edgekit.deploy._bench_settings import BenchSettings
from edgekit.deploy._client import BoardClient
from edgekit.deploy._embedded import find_sshd, sshd
from edgekit.deploy._install import install
from edgekit.deploy._jobs import JobLog
from edgekit.deploy._local import LocalTransport
from edgekit.deploy._open import open_board
from edgekit.deploy._ssh import SshTransport
from edgekit.deploy._transport import Completed, Transport
from edgekit.deploy._types import Board, Container, Kind, Progress, Release

__all__ = [
    "BenchSettings",
    "Board",
    "BoardClient",
    "Completed",
    "Container",
    "JobLog",
    "Kind",
    "LocalTransport",
    "Progress",
    "Release",
    "SshTransport",
    "Transport",
    "find_sshd",
    "install",
    "open_board",
    "sshd",
]

make_callable(__name__)
