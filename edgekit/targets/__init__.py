"""Boards from `targets/NAME.yaml`: devices, clocks, memory, power modes and their JetPack releases.
Start with `get` in `loader`, which returns a `Target`.
"""
