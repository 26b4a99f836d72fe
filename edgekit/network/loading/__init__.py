"""From what a user gives to a checked ``Model``: start with ``load`` in ``load``."""
