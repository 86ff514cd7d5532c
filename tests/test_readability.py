"""What a reader of plain ALBERT has to open stays small, whatever else the encoder can be."""

from __future__ import annotations

from benchmarks.readability import PACKAGE, entered

READ = {
    "layout.py",
    "precision.py",
    "model/model.py",
    "model/encoder.py",
    "model/embeddings.py",
    "model/rows.py",
    "model/depths.py",
    "model/block.py",
    "model/layers.py",
    "model/heads.py",
    "model/backend/__init__.py",
    "model/backend/base.py",
}


def test_a_pass_of_plain_albert_enters_few_files_lines_and_functions() -> None:
    found = entered("plain")
    files = {file for file, _ in found}
    assert files == READ  # nothing of relative positions, memories, halting, fixed points, recomputation
    assert sum((PACKAGE / file).read_text(encoding="utf-8").count("\n") for file in files) <= 1337
    assert len(found) <= 54


def test_block_and_encoder_are_read_in_minutes() -> None:
    both = (PACKAGE / "model" / name for name in ("block.py", "encoder.py"))
    text = [path.read_text(encoding="utf-8") for path in both]
    assert sum(one.count("\n") for one in text) <= 270
    # What plain ALBERT has none of is told elsewhere (decision 016).
    assert not any(word in one.lower() for one in text for word in ("two_streams", "memory", "anderson"))
