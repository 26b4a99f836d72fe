"""The documents as text for a terminal, in at most 80 columns.
Start with ``terminal_summary`` in ``summary``, which ends every run.
"""
