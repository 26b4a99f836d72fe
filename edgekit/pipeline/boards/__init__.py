"""Requests to boards outside of a run: status, releases, servers, the live view, doctor and
self-test. Start with `resolve_boards` in `addresses`.
"""
