"""Applies rewrites: searches to a fixed point, judges and proves each step, and selects the steps
to keep. Start with ``RewriteSearch`` in ``search``.
"""
