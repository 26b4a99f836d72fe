"""Measurements of several tools on one timeline, as a Chrome trace for Perfetto.
Start with ``trace_document`` in ``run`` and ``write_trace`` in ``sources``.
"""
