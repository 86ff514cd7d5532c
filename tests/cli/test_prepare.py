"""`prepare` that goes on with what an earlier call began."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from albertine.corpus import prepare as preparing
from tests.cli.conftest import Command
from tests.corpus.texts import library


def test_text_that_has_grown_goes_on_with_the_share_it_was_begun_with(
    albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    corpus, text = tmp_path / "corpus", library(tmp_path / "text", 60)
    words = ("prepare", text, "-o", corpus, "--tokenizer", "albertine-mini-en", "--workers", 1)
    with monkeypatch.context() as patched:
        patched.setattr(preparing, "write_shard", killed)
        assert albertine(*words).code != 0 and (corpus / "prepare.json").is_file()
    library(tmp_path / "text", 90)
    refused = albertine(*words, "--held-out", 0.3)
    assert refused.code == 2 and "settings.held_out: 0.167 → 0.3" in " ".join(refused.err.split())
    assert albertine(*words).code == 0
    made = (corpus / "manifest.json").read_bytes()
    assert json.loads(made)["settings"]["held_out"] == 0.167
    assert albertine(*words).code == 0 and (corpus / "manifest.json").read_bytes() == made
