"""What is asked of boards without running a configuration's steps: status, releases, servers, the
live view, doctor and self-test. Start with `boards_of` in `addresses`.
"""
