"""The signers and bundles that a board accepts. Start with ``check_bundle`` in ``bundle``."""
