"""Boards over SSH: connecting, the client of the board's agent, installing releases, and
edgekit's own board for those who have none.
Start with ``open_board`` in ``connection`` and ``install`` in ``install``.
"""
