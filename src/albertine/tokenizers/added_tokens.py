"""Pieces that somebody added to a vocabulary, such as [E1] before an entity: transformers keeps them whole
wherever a text has them, in which of three files depends on its release."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albertine.errors import TokenizerError


class AddedToken(NamedTuple):
    """A piece that is found in a text before anything else is done to it.

    The flags are those of the `tokenizers` library.

    Attributes:
        content: how it is written. normalized: looked for in the cleaned text, and cleaned itself.
        single_word: not inside of words. lstrip, rstrip: spaces before or behind belong to it.
    """

    content: str
    normalized: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


AddedTokens = dict[str, tuple[int, AddedToken]]
"""By spelling: id, and how it is found."""
LIST_KEYS = ("additional_special_tokens", "extra_special_tokens")
"""Words of a configuration that list pieces without their ids; the second is that of release 5."""
_MOST_IDS = 10**9
_LISTED = -2
"""In place of the id of such a piece, which counts if the vocabulary has it."""


def read_added_tokens(
    fast: Mapping[str, Any], config: Mapping[str, Any], slow: Mapping[str, Any] | None = None
) -> AddedTokens:
    """What three files say.

    Args:
        fast: `tokenizer.json`. config: `tokenizer_config.json`, whose lists of special pieces come last.
        slow: `added_tokens.json`, of ids alone.
    """
    found = {text: (_whole_number(i), AddedToken(text)) for text, i in (slow or {}).items()}
    decoder = config.get("added_tokens_decoder")
    entries = list(decoder.items()) if isinstance(decoder, dict) else []
    listed = fast.get("added_tokens")
    entries += [(e.get("id"), e) for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    for i, entry in entries:
        if isinstance(entry, dict) and "content" in entry:
            found[str(entry["content"])] = _whole_number(i), _piece(entry)
    for piece in _special(config):
        found.setdefault(piece.content, (_LISTED, piece))
    return found


def _special(config: Mapping[str, Any]) -> Iterator[AddedToken]:
    """The pieces of the lists, which hold names or objects, perhaps each under a name of its own."""
    for listed in (config.get(name) for name in LIST_KEYS):
        entries = listed.values() if isinstance(listed, dict) else listed
        for entry in entries if isinstance(entries, Iterable) and not isinstance(entries, str) else ():
            told = {"content": entry} if isinstance(entry, str) else entry
            if isinstance(told, dict) and "content" in told:
                yield _piece(told)


def _piece(entry: Mapping[str, Any]) -> AddedToken:
    flags = {name: entry.get(name) is True for name in AddedToken._fields[1:]}
    return AddedToken(str(entry["content"]), **flags)


def _whole_number(said: object) -> int:
    """An id; -1 where it is none."""
    text = str(said) if not isinstance(said, int) or abs(said) < _MOST_IDS else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(_MOST_IDS)) else -1


def append_added_tokens(
    pieces: Sequence[str], added: AddedTokens, special: Iterable[str], usual: frozenset[str], where: object
) -> tuple[list[str], list[AddedToken]]:
    """A vocabulary with the pieces that were added behind it, and all pieces that are kept whole, in the
    order of ids.

    Args:
        special: pieces of the vocabulary that no text has. usual: how any family spells its special pieces;
            these need not be there.

    Raises:
        TokenizerError: ids of added pieces do not follow those of the vocabulary.
    """
    known, hidden = {piece: i for i, piece in enumerate(pieces)}, set(special)
    added = {
        text: (known.get(text, i), piece)
        for text, (i, piece) in added.items()
        if i != _LISTED or text in known
    }
    outside = {i: piece for i, piece in added.values() if piece.content not in known}
    more: dict[str, None] = {}
    if any(piece.content not in usual for piece in outside.values()):
        while (i := len(pieces) + len(more)) in outside:
            more[outside[i].content] = None
    lost = [text for text in added if text not in known and text not in usual and text not in more]
    if lost:
        raise id_gap_error(lost, where)
    found = known.keys() - hidden | more.keys()
    whole = [(i, p) for i, p in added.values() if p.content in found]
    return [*pieces, *more], [piece for _, piece in sorted(whole)]


def id_gap_error(more: Sequence[str], where: object) -> TokenizerError:
    """Of pieces whose ids do not follow those of a vocabulary."""
    return TokenizerError(
        f"has pieces outside its vocabulary ({', '.join(more[:3]) or 'ids with gaps'})",
        where=where,
        remedy="Added pieces need the ids behind those of the vocabulary, without gaps: save the tokenizer "
        "again as it was when the model was tuned",
    )
