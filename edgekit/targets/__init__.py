"""Boards as `targets/NAME.yaml` describes them: devices, clocks, memory, power modes and the
JetPack releases that run on them. Start with `get` in `loader`, which returns a `Target`.
"""
