"""Measurements on boards: the document, its statistics, whether it is valid, its energy, and
traces for Perfetto. Start with ``bench_document`` in ``document``.
"""
