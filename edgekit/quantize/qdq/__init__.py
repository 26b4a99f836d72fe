"""Both directions between scales and Q/DQ nodes. Start with ``from_qdq`` in ``to_implicit``
and ``to_qdq`` in ``to_explicit``.
"""
