"""Reading damaged files of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from albertine.core.files import read_json


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[1]", "\udc80"], ids=lambda text: ascii(text[:8]))
def test_what_holds_no_mapping_is_empty(text: str, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert read_json(file) == {}
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_json(file) == {}
    file.write_text('{"a": 1}')
    assert read_json(file) == {"a": 1}
