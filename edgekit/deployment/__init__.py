"""Boards over SSH: connections, the client of the board's agent, installing releases, and edgekit's
own board on loopback.
Start with ``open_board`` in ``connection`` and ``install`` in ``install``.
"""
