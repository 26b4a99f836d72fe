"""TensorRT's logs: the builder's placement, its times, and the differences from a verdict. Start
with ``read_log`` in ``reading`` and ``compare`` in ``comparison``.
"""
