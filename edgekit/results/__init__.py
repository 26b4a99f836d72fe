"""The store of measurements (SQLite) and the comparison of two of them. Start with `record` in
`recording`, `select_results` in `selection` and `compare` in `comparison`.
"""
