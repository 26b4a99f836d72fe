"""Applies rewrites: search to a fixed point, each step judged and proved, then what stays.
Start with ``Search`` in ``search``.
"""
