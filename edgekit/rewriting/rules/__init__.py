"""The rewrites, by subject. Start with ``rewrites`` in ``registry``, which has their order;
``pointwise.arithmetic.Neg`` is a short one to copy.
"""
