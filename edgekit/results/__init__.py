"""The store of measurements (SQLite) and the comparison of two measurements. Start with `record` in
`recording`, `select_results` in `selection` and `compare` in `comparison`.
"""
