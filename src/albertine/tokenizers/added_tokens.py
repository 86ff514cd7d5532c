"""Tokens added to a vocabulary, such as [E1] before an entity, which transformers does not split.

They are stored in one of three files, by the release of transformers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albertine.errors import TokenizerError


class AddedToken(NamedTuple):
    """A token that is found in a text before normalisation and splitting; flags as in the `tokenizers`
    library.

    Attributes:
        content: its text.
        normalized: matched in the normalised text, and normalised itself.
        single_word: not matched inside words.
        lstrip, rstrip: spaces before or after belong to it.
    """

    content: str
    normalized: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False


AddedTokens = dict[str, tuple[int, AddedToken]]
"""By content: id and token."""
LIST_KEYS = ("additional_special_tokens", "extra_special_tokens")
"""Keys of a configuration that list tokens without ids; the second is of transformers 5."""
_MAX_ID = 10**9
_LISTED = -2
"""Id of a listed token without one; it is used if the vocabulary has it."""


def read_added_tokens(
    fast: Mapping[str, Any], config: Mapping[str, Any], slow: Mapping[str, Any] | None = None
) -> AddedTokens:
    """The added tokens in three files.

    Args:
        fast: `tokenizer.json`.
        config: `tokenizer_config.json`; its lists of special tokens have the lowest precedence.
        slow: `added_tokens.json`, from content to id.
    """
    found = {text: (_parse_id(i), AddedToken(text)) for text, i in (slow or {}).items()}
    decoder = config.get("added_tokens_decoder")
    entries = list(decoder.items()) if isinstance(decoder, dict) else []
    listed = fast.get("added_tokens")
    entries += [(e.get("id"), e) for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
    for i, entry in entries:
        if isinstance(entry, dict) and "content" in entry:
            found[str(entry["content"])] = _parse_id(i), _parse_token(entry)
    for token in _listed(config):
        found.setdefault(token.content, (_LISTED, token))
    return found


def _listed(config: Mapping[str, Any]) -> Iterator[AddedToken]:
    """The tokens in the lists, which hold strings or objects, or map names to them."""
    for listed in (config.get(name) for name in LIST_KEYS):
        entries = listed.values() if isinstance(listed, dict) else listed
        for entry in entries if isinstance(entries, Iterable) and not isinstance(entries, str) else ():
            token = {"content": entry} if isinstance(entry, str) else entry
            if isinstance(token, dict) and "content" in token:
                yield _parse_token(token)


def _parse_token(entry: Mapping[str, Any]) -> AddedToken:
    flags = {name: entry.get(name) is True for name in AddedToken._fields[1:]}
    return AddedToken(str(entry["content"]), **flags)


def _parse_id(value: object) -> int:
    """An id; -1 if it is invalid."""
    text = str(value) if not isinstance(value, int) or abs(value) < _MAX_ID else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(_MAX_ID)) else -1


def append_added_tokens(
    vocabulary: Sequence[str],
    added: AddedTokens,
    special: Iterable[str],
    known_special: frozenset[str],
    where: object,
) -> tuple[list[str], list[AddedToken]]:
    """The vocabulary with the tokens added after it, and all tokens that must not be split, in the order of
    ids.

    Args:
        special: tokens of the vocabulary that no text encodes to.
        known_special: special tokens of any model family; these may be missing from the vocabulary.

    Raises:
        TokenizerError: ids of added tokens do not follow those of the vocabulary.
    """
    known, hidden = {token: i for i, token in enumerate(vocabulary)}, set(special)
    added = {
        text: (known.get(text, i), token)
        for text, (i, token) in added.items()
        if i != _LISTED or text in known
    }
    outside = {i: token for i, token in added.values() if token.content not in known}
    more: dict[str, None] = {}
    if any(token.content not in known_special for token in outside.values()):
        while (i := len(vocabulary) + len(more)) in outside:
            more[outside[i].content] = None
    lost = [text for text in added if text not in known and text not in known_special and text not in more]
    if lost:
        raise id_gap_error(lost, where)
    found = known.keys() - hidden | more.keys()
    whole = [(i, p) for i, p in added.values() if p.content in found]
    return [*vocabulary, *more], [token for _, token in sorted(whole)]


def id_gap_error(more: Sequence[str], where: object) -> TokenizerError:
    """The error for tokens whose ids do not follow those of the vocabulary."""
    return TokenizerError(
        f"has tokens outside its vocabulary ({', '.join(more[:3]) or 'ids with gaps'})",
        where=where,
        remedy="Added tokens need the ids after those of the vocabulary, without gaps: save the tokenizer "
        "again as it was when the model was tuned",
    )
