"""Put on a board's interpreter with PYTHONPATH, by tests only."""

import durable_ops

durable_ops.install_from_environment()
