"""Fixtures of this folder: real sshd boards."""

from tests.boards.fixtures import boards, home

__all__ = ["boards", "home"]
