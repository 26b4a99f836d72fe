"""TensorRT's logs: what its builder says, what it measured, and where it differs from a
verdict. Start with ``read_log`` in ``reading`` and ``compare`` in ``comparison``.
"""
