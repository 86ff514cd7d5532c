"""A shard counts as finished only if it is complete and of the same text and settings."""

from __future__ import annotations

from pathlib import Path

from albertine.corpus.shards import EDGE_BYTES, load_finished_shard, part_path, write_shard
from tests.corpus.handmade import arrays


def test_a_shard_of_other_text_other_settings_or_with_damage_is_made_again(tmp_path: Path) -> None:
    record = write_shard(
        tmp_path, 0, arrays(1, 400, 1000), unknown=0, empty_documents=0, text="text", stamp="stamp"
    )
    assert load_finished_shard(tmp_path, 0, text="text", stamp="stamp") == record
    assert load_finished_shard(tmp_path, 0, text="other", stamp="stamp") is None
    assert load_finished_shard(tmp_path, 0, text="text", stamp="other") is None
    tokens = part_path(tmp_path, 0, "tokens")
    content = bytearray(tokens.read_bytes())
    assert len(content) > 3 * EDGE_BYTES, "beyond what the quick check looks at"
    content[len(content) // 2] ^= 1
    tokens.write_bytes(content)
    assert load_finished_shard(tmp_path, 0, text="text", stamp="stamp") is None
