"""The YAML file: its schema and its loader."""

from edgekit.config._load import Config, from_model, load_config, parse_config

__all__ = ["Config", "from_model", "load_config", "parse_config"]
