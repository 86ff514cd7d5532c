"""The rows of the ladder can be run, as they were measured, and all kept results are in the table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.core.settings import load
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import check_depths
from benchmarks import ladder, learned


def settings(row: str) -> PretrainingSettings:
    run = {"name": row, "corpus": "corpora/en", "training.minutes": 6}
    return load(PretrainingSettings, None, ladder.assignments(ladder.ROWS[row] | run))


@pytest.mark.parametrize("row", ladder.ROWS)
def test_every_row_is_a_run(row: str) -> None:
    found = settings(row)
    model = initial_model(found, np.ones(600, np.int64))
    check_depths(found, model.config.num_hidden_layers)
    assert found.objective.short_probability == 0.1, "as when the rows were measured"
    tokens = found.training.batch_size * found.objective.max_length
    assert tokens == 4096 or row.startswith("batch"), "the rows differ in one thing"


def test_bert_shares_nothing() -> None:
    config = initial_model(settings("bert-ramp"), np.ones(600, np.int64)).config
    assert config.embedding_size == config.hidden_size and config.positions == "learned"
    assert len(set(config.plan.attention)) == config.num_hidden_layers


def test_the_rows_that_the_help_names_are_there() -> None:
    named = re.findall(r"--rows (\S+)", ladder.__doc__ or "")
    assert named and {row for rows in named for row in rows.split(",")} <= ladder.ROWS.keys()
    assert ladder.KEPT.keys() <= ladder.ROWS.keys()


def test_all_files_of_a_machine_are_one_ladder(tmp_path: Path) -> None:
    def put(date: str, tokens: dict[str, float], **budget: Any) -> None:
        runs = [
            {
                "row": row,
                "seed": 1,
                "tokens": 1e6 * count,
                "spans": {"nats_per_character": 2.0},
                "mask_accuracy": 0.1,
                "mask_loss": 6.0,
            }
            for row, count in tokens.items()
        ]
        tree = {**budget, "threads": 1, "corpus": "en", "runs": runs}
        (tmp_path / f"{date}-ladder.json").write_text(json.dumps(tree))

    put("2026-01-01", {"albert": 1.0, "growing": 2.0}, minutes=6.0)
    put("2026-01-02", {"albert": 3.0}, steps=300)
    put("2026-01-03", {"albert": 4.0, "bert-ramp": 5.0}, minutes=6.0)
    lines = [line for line in "".join(learned.ladder(tmp_path)).splitlines() if line.startswith("| ")]
    cells_of_rows = [
        (cells[1], cells[3], cells[7]) for cells in (re.split(r" *\| *", line) for line in lines)
    ]
    assert [cells for cells in cells_of_rows if cells[1].endswith(" M")] == [
        ("albert", "4.0 M", "2026-01-03"),
        ("bert-ramp", "5.0 M", "2026-01-03"),
        ("growing", "2.0 M", "2026-01-01"),
        ("albert", "3.0 M", "2026-01-02"),
    ]
    (growing,) = [line for line in lines if "growing" in line]
    assert ladder.KEPT["growing"] in growing
    assert "corpora/en --minutes 6 --threads 1 --rows albert,bert-ramp,growing --save" in "".join(
        learned.ladder(tmp_path)
    )


def test_seeds_are_reported_with_their_spread(tmp_path: Path) -> None:
    runs = [
        {
            "row": "growing",
            "seed": seed,
            "tokens": 1e6,
            "spans": {"nats_per_character": 2.0},
            "mask_accuracy": accuracy,
            "mask_loss": 6.0,
        }
        for seed, accuracy in ((1, 0.2), (2, 0.23), (3, 0.221))
    ]
    tree = {"minutes": 6.0, "threads": 1, "corpus": "en", "runs": runs}
    (tmp_path / "2026-01-01-ladder.json").write_text(json.dumps(tree))
    table = "".join(learned.ladder(tmp_path))
    assert "--threads 1 --seeds 1,2,3 --rows growing --save" in table
    assert "| growing | 3 | 1.0 M | 2.000 (2.000 to 2.000) | 21.7% (20.0% to 23.0%) |" in table


def test_minimal_pairs_have_a_column_a_scoring() -> None:
    base = {"tokens": 1e6, "spans": {"nats_per_character": 2.0}, "mask_accuracy": 0.2, "mask_loss": 6.0}
    runs = [
        {**base, "row": "unshared", "seed": 1, "suite": {"name": "blimp", "pll": 0.6}},
        {**base, "row": "causal-50", "seed": 1, "suite": {"name": "blimp", "pll": 0.61, "causal": 0.64}},
        {**base, "row": "growing", "seed": 1},
    ]
    head, _, *rows = ladder.table(runs).splitlines()
    assert "| blimp, pll | blimp, causal | measured |" in head
    assert [row.split(" | ")[6:8] for row in rows] == [["60.0%", ""], ["61.0%", "64.0%"], ["", ""]]
