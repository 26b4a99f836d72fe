"""The report as one HTML page that needs no network, with its templates, styles and scripts.
Start with ``page_view`` and ``write_report`` in ``page``.
"""
