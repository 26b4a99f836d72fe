"""Exact graph rewrites: applied where they help, each proved when it is applied. Start with
``rewrite`` in ``rewrite``; the rewrites are in ``rules``, by subject, and
``rules.order`` has their order.
"""
