"""The layers that a DLA can run: verdicts from the rules under ``dla/``, loadables, their memory,
and tensor formats. Start with ``judge`` in ``judge``, which gives each layer its verdict.
"""
