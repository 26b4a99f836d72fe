"""What editors read of the configuration; scripts/test holds that generated pages are current."""

import json
from pathlib import Path

SCHEMA = Path(__file__).parents[2] / "docs/config.schema.json"


def test_schema_accepts_what_edgekit_accepts():
    schema = json.loads(SCHEMA.read_text())
    assert schema["required"] == ["version", "name", "model", "target"]
    assert schema["additionalProperties"] is False
