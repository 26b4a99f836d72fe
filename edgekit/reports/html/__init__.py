"""The report as one HTML page that needs no network; templates, styles and scripts lie here.
Start with ``page_view`` and ``write_report`` in ``page``.
"""
