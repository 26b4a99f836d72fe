"""Reports, rendered from documents: the report document and its schema, the HTML page, Markdown
and the terminal. It computes nothing that a document could say.
Start with ``report_document`` in ``document`` and ``write_report`` in ``html.page``.
"""
