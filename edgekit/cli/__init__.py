"""The command line: one module a command group, which parses, calls the API and prints.
Start with ``main`` in ``main``; ``COMMANDS`` there is the table of all commands.
"""
