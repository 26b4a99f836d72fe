"""The YAML file: its schema, its loader, its reference page and the file that `edgekit init`
writes. Start with `open_config` in `loader`; the keys are in `schema`.
"""
