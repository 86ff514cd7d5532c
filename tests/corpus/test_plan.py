"""What decides the content of a corpus folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from albertine.corpus import plan as module
from albertine.corpus.cutting import CutRules
from albertine.corpus.plan import Options, begun_on_another_text, make_plan, stamp
from tests.corpus.texts import letter_tokenizer


def plan(folder: Path, tokenizer: Any) -> dict[str, Any]:
    options = Options("en", "auto", "text", "utf-8", 1, True, "pieces", CutRules(200, 0.01, 10**6, 1), False)
    return make_plan([folder], [sorted(folder.iterdir())], tokenizer, options)


def test_names_of_files_count_where_their_sizes_are_the_same(tmp_path: Path) -> None:
    tokenizer, text = letter_tokenizer(tmp_path / "vocabulary"), tmp_path / "text"
    text.mkdir()
    (text / "a.txt").write_text("the old man")
    before = plan(text, tokenizer)
    assert plan(text, tokenizer) == before
    (text / "a.txt").rename(text / "b.txt")
    after = plan(text, tokenizer)
    assert after["sources"] != before["sources"]
    assert stamp(after) == stamp(before)  # of a shard the text decides, not where it lies


@pytest.mark.parametrize(
    ("change", "another"),
    [
        ({}, False),
        ({"sources": []}, True),
        ({"tokenizer": {"kind": "wordpiece", "vocab_size": 9, "fingerprint": "x"}}, True),
        ({"sources": None}, True),
    ],
)
def test_a_vocabulary_belongs_to_the_text_it_was_begun_on(
    tmp_path: Path, change: dict[str, Any], another: bool
) -> None:
    tokenizer, text = letter_tokenizer(tmp_path / "vocabulary"), tmp_path / "text"
    text.mkdir()
    (text / "a.txt").write_text("the old man")
    assert not begun_on_another_text(tmp_path, [text], tokenizer)  # nothing was begun
    (tmp_path / "prepare.json").write_text(json.dumps(plan(text, tokenizer) | change))
    assert begun_on_another_text(tmp_path, [text], tokenizer) == another


def test_shards_of_another_version_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stamp({"language": "en"})
    assert stamp({"language": "en"}) == before != stamp({"language": "zh"})
    monkeypatch.setattr(module, "__version__", "another")
    assert stamp({"language": "en"}) != before
