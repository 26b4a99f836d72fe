"""Exact graph rewrites: applied if they help, and proved when applied. Start with ``rewrite`` in
``rewrite``; the rewrites are in ``rules``, by subject, and ``rules.order`` has their order.
"""
