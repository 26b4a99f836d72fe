"""Plans, builds and measures on the first board until nothing that is left can be better.
Start with ``tune`` in ``run``; the loop is ``Tuning`` in ``session``.
"""
