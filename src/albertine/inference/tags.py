"""Tags of tokens and the entities that they name."""

from __future__ import annotations

from collections.abc import Sequence

from albertine.text.tokenizer import Spans

Entity = tuple[str, int, int]
"""Type, first character, end (exclusive)."""


def bio_spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Entities of a sequence of BIO or BIOES tags as (type, first, end), `end` exclusive.

    As seqeval's default mode, and conlleval, read them: an I without a beginning, or of another type than
    what runs, begins an entity.
    """
    spans: list[tuple[str, int, int]] = []
    kind, begin = "", 0
    for i, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        ends = kind and (mark in "OBS" or name != kind or tags[i - 1][0] in "ES")
        if ends:
            spans.append((kind, begin, i))
            kind = ""
        if mark != "O" and not kind:
            kind, begin = name, i
    return spans


def entities_of(spans: Spans, tags: Sequence[str]) -> list[Entity]:
    """The characters of the entities that the tags of the tokens name."""
    found = []
    for name, first, end in bio_spans(tags):
        begin, last = spans.starts[first], max(spans.ends[first:end])
        if last > begin:
            found.append((name, begin, last))
    return found
