"""Plans, builds and measures on the first board until no remaining plan can be better. Start with
``tune`` in ``run``; the loop is ``Tuning`` in ``session``.
"""
