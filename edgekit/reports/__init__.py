"""Reports, rendered from documents: the report document and its schema, the HTML page, Markdown
and the terminal. It only formats values that a document contains.
Start with ``report_document`` in ``document`` and ``write_report`` in ``html.page``.
"""
