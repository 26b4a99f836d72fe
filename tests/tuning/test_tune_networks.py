"""tune tries the rewritten network and the one as it came; tuned.yaml plans as the winner."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.config.loader import open_config, parse_config
from edgekit.errors import ConfigError
from edgekit.pipeline.cache import Cache
from edgekit.pipeline.context import Context, variant
from edgekit.pipeline.pipeline import Pipeline
from edgekit.pipeline.steps.plan import query
from edgekit.pipeline.steps.rewrite import found_rewrites, model_digest
from edgekit.tuning.candidates import plan_signature
from edgekit.tuning.document import snippet, tune_document
from edgekit.tuning.journal import TuningJournal
from edgekit.tuning.session import Tuning
from edgekit.tuning.text import tune_text
from edgekit.tuning.trials import ORIGINAL, ORIGINAL_SECTION, REWRITTEN, TuningRequest
from tests.pipeline.nets import small_config
from tests.tuning.tune_world import World, world_of


@dataclass
class Nets:
    """A configuration, and its networks as it came and rewritten."""

    own: Context
    came: Context
    rewritten: Context


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Nets:
    folder = tmp_path_factory.mktemp("networks")
    config = open_config(small_config(folder, precision="fp16", objective="latency"))
    with Pipeline(config, cache=Cache(folder / "cache")) as pipeline:
        own = pipeline.context
        assert found_rewrites(own).model is not None
        came = variant(own, rewrite=dict(ORIGINAL_SECTION))
        return Nets(own, came, variant(own, rewrite={"always": True}))


def tuned(
    nets: Nets,
    faster: str,
    *,
    broken: bool = False,
    clock: str = "board-measured",
    journal: TuningJournal | None = None,
    **request: Any,
) -> Tuning:
    def net(name: str, context: Context) -> World:
        us = 10.0 if name == faster else 40.0
        # the DLA is better everywhere, which no prediction of so small a network says
        return world_of(
            query(context),
            {"*": us},
            {"*": us / 3},
            switch_us=0.0,
            clock=clock,
            name=name,
            model=model_digest(context),
            broken=broken and name == REWRITTEN,
        )

    tuning = Tuning(
        [net(ORIGINAL, nets.came), net(REWRITTEN, nets.rewritten)],
        TuningRequest("latency", **{"rounds": 9, **request}),
        journal,
    )
    tuning.run()
    return tuning


@pytest.mark.whole
@pytest.mark.parametrize("clock", ["board-measured", "cpu-measured"])
@pytest.mark.parametrize("faster", [ORIGINAL, REWRITTEN])
def test_the_better_network_is_found_and_planned_again(
    nets: Nets, tmp_path: Path, faster: str, clock: str
) -> None:
    assert model_digest(nets.came) != model_digest(nets.rewritten)
    tuning = tuned(nets, faster, clock=clock)
    winner = tuning.winner
    assert winner.network == faster
    assert winner is not tuning.first
    assert tuning.trials[1].origin == "other"
    profile = tmp_path / "tuned.profile.json"
    profile.write_text(json.dumps(tuning.table(winner.network).to_json()))
    text = snippet(nets.own.config, tuning, profile, nets.own)
    with pytest.raises(ConfigError, match="not a whole configuration"):
        parse_config(text, "tuned.yaml", tmp_path)
    again = open_config(nets.own.config, **yaml.safe_load(text))
    with Pipeline(again, cache=nets.own.cache) as pipeline:
        assert plan_signature(pipeline.plan()) == winner.key
        assert model_digest(pipeline.context) == tuning.networks[winner.network].model
        assert [x.name for x in pipeline.plan().layers] == [x.name for x in winner.plan.layers]
    assert "a little elsewhere" not in text
    document = tune_document(tuning, name="x", files={"profile": "p", "snippet": "s"})
    notes = "\n".join(tune_text(document))
    assert f"this is the {'rewritten one' if faster == REWRITTEN else 'original one'}" in notes
    assert json.dumps(document.to_json())


def test_a_network_that_is_not_tried_is_named(nets: Nets) -> None:
    broken = tuned(nets, REWRITTEN, broken=True, rounds=3)
    assert broken.winner.network == ORIGINAL
    assert any("network rewritten was not tried" in note for note in broken.notes)
    short = tuned(nets, REWRITTEN, rounds=1)
    assert "the network rewritten was not tried" in short.notes


def test_plans_of_both_networks_are_carried_on(nets: Nets, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = tuned(nets, REWRITTEN, journal=TuningJournal(path, "same"), rounds=4)
    again = tuned(nets, REWRITTEN, journal=TuningJournal(path, "same"), budget_s=0.0)
    assert not any(one.measured for one in again.networks.values())  # type: ignore[attr-defined]
    assert [t.network for t in again.trials] == [t.network for t in first.trials]
    assert again.winner.key == first.winner.key
    assert again.winner.network == REWRITTEN
    assert again.duel == first.duel
