"""The rewrites, by subject. Start with ``REWRITES`` in ``order``; ``arithmetic.neg`` is a short one
to copy.
"""
