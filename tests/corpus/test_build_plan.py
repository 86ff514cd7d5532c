"""What decides the content of a corpus folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from albertine.corpus import build_plan as module
from albertine.corpus import prepare as preparing
from albertine.corpus.build_plan import BuildOptions, has_other_text, make_plan, plan_digest, stored_setting
from albertine.corpus.manifest import load_manifest, manifest_digest
from albertine.corpus.prepare import write_corpus
from albertine.corpus.shard_texts import SplitRules
from tests.corpus.texts import letter_tokenizer, library


def plan(folder: Path, tokenizer: Any) -> dict[str, Any]:
    options = BuildOptions(
        "en", "auto", "text", "utf-8", 1, True, "pieces", SplitRules(200, 0.01, 10**6, 1), False
    )
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
    assert plan_digest(after) == plan_digest(before)  # of a shard the text decides, not where it lies


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
    assert not has_other_text(tmp_path, [text], tokenizer)  # nothing was begun
    (tmp_path / "prepare.json").write_text(json.dumps(plan(text, tokenizer) | change))
    assert has_other_text(tmp_path, [text], tokenizer) == another


def killed(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("interrupted", [False, True])
def test_runs_recognise_a_corpus_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    tokenizer, text = letter_tokenizer(tmp_path / "vocabulary"), library(tmp_path / "text")
    monkeypatch.chdir(tmp_path)
    corpus = Path("corpus")
    write_corpus(["text"], corpus, tokenizer, "en", workers=1)
    before = manifest_digest(corpus)
    (corpus / "train" / "shard-00000.words.npy").unlink()
    if interrupted:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(preparing, "write_shard", killed)
            write_corpus([text.parent], corpus, tokenizer, "en", workers=1)
    write_corpus([text.parent], corpus, tokenizer, "en", workers=1)
    assert manifest_digest(corpus) == before
    write_corpus([text.parent], "other", tokenizer, "en", workers=1)
    assert manifest_digest(Path("other")) != before


def test_another_text_is_named_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, other = letter_tokenizer(tmp_path / "vocabulary"), library(tmp_path / "other", 70)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(preparing, "write_shard", killed)
        write_corpus([library(tmp_path / "text")], tmp_path / "corpus", tokenizer, "en", workers=1)
    made = write_corpus([other], tmp_path / "corpus", tokenizer, "en", workers=1)
    assert made.sources[0]["path"] == str(other)


def test_text_that_has_grown_is_cut_as_the_corpus_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, text = letter_tokenizer(tmp_path / "vocabulary"), library(tmp_path / "text")
    monkeypatch.setattr(preparing, "_shard_characters", lambda size: 6000 + size)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(preparing, "write_shard", killed)
        write_corpus([text], tmp_path / "corpus", tokenizer, "en", workers=1)
    begun = 6000 + text.stat().st_size
    library(tmp_path / "text", 70)
    for _ in range(2):  # unfinished, and done
        write_corpus([text], tmp_path / "corpus", tokenizer, "en", workers=1)
        assert load_manifest(tmp_path / "corpus").settings["shard_characters"] == begun


@pytest.mark.parametrize(
    "there",
    [{}, {"manifest.json": "[]"}, {"prepare.json": "{"}, {"prepare.json": '{"settings": {"a": "b"}}'}],
)
def test_no_setting_is_taken_from_what_cannot_be_read(tmp_path: Path, there: dict[str, str]) -> None:
    for name, content in there.items():
        (tmp_path / name).write_text(content)
    assert stored_setting(tmp_path, "a") is None


def test_shards_of_another_version_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_digest({"language": "en"})
    assert plan_digest({"language": "en"}) == before != plan_digest({"language": "zh"})
    monkeypatch.setattr(module, "__version__", "another")
    assert plan_digest({"language": "en"}) != before
