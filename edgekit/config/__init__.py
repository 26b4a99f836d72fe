"""The YAML file: its schema, its loader, its reference page and its template."""

from edgekit.config._load import Config, load_config, parse_config
from edgekit.config._open import open_config
from edgekit.config._paths import paths_in, rebased
from edgekit.config._reference import json_schema, reference_page
from edgekit.config._template import write_template

__all__ = [
    "Config",
    "json_schema",
    "load_config",
    "open_config",
    "parse_config",
    "paths_in",
    "rebased",
    "reference_page",
    "write_template",
]
