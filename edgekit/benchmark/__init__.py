"""Measurements on boards: the document, its statistics, verdict and energy, and traces for
Perfetto. Start with ``bench_document`` in ``document``.
"""
