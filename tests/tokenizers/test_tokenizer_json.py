"""Vocabularies beside which or in which other programs left more than tokens: read rightly, or refused."""

from __future__ import annotations

import io
import json
import pickle
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from sentencepiece import SentencePieceTrainer
from tokenizers import models, normalizers, pre_tokenizers, processors

from albertine.errors import TokenizerError
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import Piece, PieceType, serialize_model
from albertine.tokenizers.train import ALBERT_PIECES
from albertine.tokenizers.wordpiece import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Hello", "hello", "hell", "##o", "world", "é", "e"]
LINES = [
    f"The {a} sat on the {b}, and the {a} ate {n} of them."
    for n, (a, b) in enumerate((a, b) for a in ("cat", "dog", "child") for b in ("mat", "chair", "old table"))
]


def sentencepiece(**settings: Any) -> SentencePieceTokenizer:
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 10),
        model_writer=model,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        **(ALBERT_PIECES | {"vocab_size": 400} | settings),
    )
    return SentencePieceTokenizer(model.getvalue())


def wordpiece() -> WordPieceTokenizer:
    return WordPieceTokenizer(PIECES)


AROUND = processors.TemplateProcessing(
    single="[CLS]:0 $A:0 [SEP]:0",
    pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)


def written(
    folder: Path,
    normalizer: Any = normalizers.BertNormalizer(),  # noqa: B008
    pre_tokenizer: Any = pre_tokenizers.BertPreTokenizer(),  # noqa: B008
    post_processor: Any = AROUND,
    **settings: Any,
) -> Path:
    """A folder with only the tokenizer.json of a WordPiece vocabulary."""
    vocabulary = {piece: i for i, piece in enumerate(PIECES)}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", **settings))
    library.normalizer, library.pre_tokenizer = normalizer, pre_tokenizer
    if post_processor is not None:
        library.post_processor = post_processor
    folder.mkdir(exist_ok=True)
    library.save(str(folder / "tokenizer.json"))
    return folder


def changed(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")


FILES = ("added_tokens.json", "tokenizer_config.json", "tokenizer.json")


def note(folder: Path, file: str, name: str, number: int) -> None:
    """An added token, as stored in one of three files."""
    entry = {"content": name, "special": True, "normalized": False}
    if file == "added_tokens.json":
        (folder / file).write_text(json.dumps({name: number}))
    elif file == "tokenizer_config.json":
        changed(folder / file, added_tokens_decoder={str(number): entry})
    else:
        changed(folder / file, added_tokens=[entry | {"id": number}])


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("make", [wordpiece, sentencepiece])
def test_added_tokens_are_not_split(make: Any, file: str, tmp_path: Path) -> None:
    plain = make()
    plain.save(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({plain.special.pad: plain.pad_id, "[PAD]": 0}))
    assert load_tokenizer(tmp_path).fingerprint == plain.fingerprint
    note(tmp_path, file, "[E1]", plain.vocab_size)
    found = load_tokenizer(tmp_path)
    assert found.vocab_size == plain.vocab_size + 1 and found.fingerprint != plain.fingerprint
    word = plain.encode("e")
    assert found.encode("e[E1]e") == [*word, plain.vocab_size, *word]
    spans = found.encode_spans("e  [E1] e")
    assert [spans.starts[i] for i in (0, len(word), -1)][1:] == [3, 8] and spans.ends[len(word)] == 7
    assert found.encode("[e1]") == plain.encode("[e1]") and found.encode("") == []
    assert found.decode([*word, plain.vocab_size, *word]) == "e [E1] e"
    assert found.word_starts([plain.vocab_size]).tolist() == [True]
    assert found("e [E1]")["input_ids"][-2] == plain.vocab_size
    other = pickle.loads(pickle.dumps(found))
    assert other.encode("e[E1]") == found.encode("e[E1]")
    found.save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").fingerprint == found.fingerprint
    # One whose id does not follow.
    note(tmp_path, file, "[E2]", plain.vocab_size + 1)
    with pytest.raises(TokenizerError, match=r"tokens outside its vocabulary \(\[E2\]\)"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("make", [wordpiece, sentencepiece])
def test_flags_of_added_tokens_are_followed(make: Any, tmp_path: Path) -> None:
    """One that is looked for in the cleaned text, and one that is none inside of words."""
    plain = make()
    plain.save(tmp_path)
    names, base = ("NewWord", "ab"), plain.vocab_size
    flags = ({"normalized": True}, {"normalized": False, "single_word": True})
    entries = [{"id": base + i, "content": names[i], **flags[i]} for i in range(2)]
    changed(tmp_path / "tokenizer.json", added_tokens=entries)
    found = load_tokenizer(tmp_path)
    assert found.encode("NEWWORDnewword") == [base, base]
    assert found.encode("ab") == [base + 1] and base + 1 not in found.encode("cab abs")


def test_settings_beside_the_tokenizer_json_of_an_albert(tmp_path: Path) -> None:
    plain = sentencepiece()
    plain.save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    for name, lower in (("AlbertTokenizer", False), ("PreTrainedTokenizerFast", True)):
        changed(tmp_path / "tokenizer_config.json", tokenizer_class=name, do_lower_case=False)
        found: Any = load_tokenizer(tmp_path)
        assert found.cleaning.lower is lower
        assert (found.encode("The CAT") == found.encode("the cat")) is lower


def test_tokens_of_the_vocabulary_may_be_kept_whole_too(tmp_path: Path) -> None:
    """A token that occurs in no text, as [unused1] of BERT's; one that is found anyway has no effect."""
    plain = sentencepiece()
    plain.save(tmp_path)
    ids = range(plain.vocab_size)
    odd = next(i for i in ids if i not in plain.special_ids and i not in plain.encode(plain.id_to_piece(i)))
    even = next(i for i in ids if plain.encode(plain.id_to_piece(i)) == [i])
    note(tmp_path, "tokenizer.json", plain.id_to_piece(even), even)
    assert load_tokenizer(tmp_path).fingerprint == plain.fingerprint
    note(tmp_path, "tokenizer.json", plain.id_to_piece(odd), odd)
    found = load_tokenizer(tmp_path)
    assert found.vocab_size == plain.vocab_size
    assert found.encode(f"a {plain.id_to_piece(odd)} b") == [*plain.encode("a"), odd, *plain.encode("b")]


@pytest.mark.parametrize(
    "settings",
    [
        {"add_dummy_prefix": False},
        {"treat_whitespace_as_suffix": True},
        {"split_by_whitespace": False},
        {"remove_extra_whitespaces": False},
        {"user_defined_symbols": ["the▁cat"]},
    ],
)
def test_no_wrong_tokenizer_json_is_written(settings: dict[str, Any], tmp_path: Path) -> None:
    for refused in (
        sentencepiece(**settings).check_can_save,
        lambda: sentencepiece(**settings).save(tmp_path / "new"),
    ):
        with pytest.raises(TokenizerError, match="keeps spaces, joins words"):
            refused()
    assert not (tmp_path / "new").exists()


def test_words_without_a_marker_are_refused(tmp_path: Path) -> None:
    sentencepiece().save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    file = tmp_path / "tokenizer.json"
    for scheme in ("never", "first"):
        marker = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}
        changed(file, pre_tokenizer={"type": "Sequence", "pretokenizers": [marker]})
        with pytest.raises(TokenizerError, match=f"prepend_scheme {scheme}"):
            load_tokenizer(tmp_path)
    older = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}]
    changed(file, pre_tokenizer={"type": "Sequence", "pretokenizers": older})
    assert load_tokenizer(tmp_path).encode("the cat") == sentencepiece().encode("the cat")


SPACES = normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
WORDS = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]


def unigram(folder: Path, steps: list[Any], before: list[Any]) -> tokenizers.Tokenizer:
    """The tokenizer.json of an ALBERT's pieces with such steps, alone in a folder."""
    plain = sentencepiece()
    library = tokenizers.Tokenizer(
        models.Unigram([(piece.text, piece.score) for piece in plain.proto.pieces], unk_id=plain.unk_id)
    )
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Sequence(before)
    library.save(str(folder / "tokenizer.json"))
    return library


@pytest.mark.parametrize(
    ("steps", "before"),
    [
        ([normalizers.Nmt(), normalizers.NFKC(), SPACES], [pre_tokenizers.Metaspace()]),
        ([], [pre_tokenizers.Digits(individual_digits=True), *WORDS]),
        ([], [*WORDS, pre_tokenizers.Punctuation()]),
        ([normalizers.Replace("1", "2")], WORDS),
        ([normalizers.Replace(tokenizers.Regex("[aeiou]"), "")], WORDS),
        ([normalizers.StripAccents()], WORDS),
        ([normalizers.NFKD()], WORDS),
        ([normalizers.StripAccents(), normalizers.NFKD()], WORDS),
        ([normalizers.Replace("``", '"')], WORDS),
        ([normalizers.Lowercase(), normalizers.Lowercase()], WORDS),
        ([], [WORDS[0], pre_tokenizers.Metaspace(replacement="_")]),
        ([], [pre_tokenizers.Metaspace()]),
        ([], [pre_tokenizers.WhitespaceSplit()]),
        ([], WORDS[::-1]),
        ([], []),
    ],
    ids=str,
)
def test_unigram_with_other_steps_than_those_of_albert_is_refused(
    steps: list[Any], before: list[Any], tmp_path: Path
) -> None:
    unigram(tmp_path, steps, before)
    with pytest.raises(TokenizerError, match="another way than ALBERT"):
        load_tokenizer(tmp_path)


QUOTES = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
ACCENTS = [normalizers.NFKD(), normalizers.StripAccents()]


@pytest.mark.parametrize(
    ("steps", "before"),
    [
        ([*QUOTES, *ACCENTS, normalizers.Lowercase(), SPACES], WORDS),
        ([*QUOTES, *ACCENTS, normalizers.Lowercase(), SPACES], WORDS[1:]),
        ([*QUOTES, SPACES], WORDS),
        ([normalizers.Replace(tokenizers.Regex(r"[\x1c-\x1f]"), " "), normalizers.Lowercase()], WORDS),
        (
            [
                *ACCENTS,
                normalizers.Replace(tokenizers.Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς"),
                normalizers.Lowercase(),
            ],
            WORDS,
        ),
    ],
    ids=str,
)
def test_the_steps_of_transformers_4_and_5_and_of_earlier_versions_are_read(
    steps: list[Any], before: list[Any], tmp_path: Path
) -> None:
    library, text = unigram(tmp_path, steps, before), "The  ``cat'' sat, oh café Σ"
    assert load_tokenizer(tmp_path).encode(text) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", ["albert-en-30k", "xlnet-en-32k"])
def test_what_transformers_saves_of_an_albert_or_xlnet_is_read(
    name: str, shared_data: Path, tmp_path: Path
) -> None:
    from transformers import AlbertTokenizer, XLNetTokenizer

    theirs = (AlbertTokenizer if name.startswith("albert") else XLNetTokenizer).from_pretrained(
        shared_data / "tokenizers" / name
    )
    theirs.save_pretrained(tmp_path)
    found, text = load_tokenizer(tmp_path), "The ``Café'' in  Paris, 3 fl. oz."
    assert found.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    "other",
    [
        {"normalizer": None},
        {"normalizer": normalizers.Sequence([normalizers.NFC()])},
        {"normalizer": normalizers.Lowercase()},
        {"normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer()])},
        {"normalizer": normalizers.BertNormalizer(clean_text=False)},
        {"pre_tokenizer": pre_tokenizers.Whitespace()},
        {"max_input_chars_per_word": 4},
        {"continuing_subword_prefix": "@@"},
    ],
)
def test_wordpiece_with_other_rules_than_those_of_bert_is_refused(
    other: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(TokenizerError, match="another way than BERT"):
        load_tokenizer(written(tmp_path, **other))


@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast"])
def test_settings_beside_tokenizer_json_count_as_in_transformers(name: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = written(tmp_path)
    settings = {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": name, "unk_token": "[UNK]", **settings})
    )
    text = "Hello world É é"
    expected = AutoTokenizer.from_pretrained(str(folder))(text, add_special_tokens=False)["input_ids"]
    assert load_tokenizer(folder).encode(text) == expected
    assert load_tokenizer(folder).encode("Hello") == [5 if name == "BertTokenizer" else 6]


@pytest.mark.parametrize(("name", "file"), [("BertTokenizer", False), ("PreTrainedTokenizerFast", True)])
def test_the_tokenizer_class_decides_which_of_two_vocabularies_counts(
    name: str, file: bool, tmp_path: Path
) -> None:
    """Catches: reading `vocab.txt` in any case, whose tokens do not show that text is not lowercased."""
    from transformers import AutoTokenizer

    folder, text = written(tmp_path, normalizers.BertNormalizer(lowercase=False)), "Hello hello"
    (folder / "vocab.txt").write_text("\n".join([*PIECES, "the", "of", "and", "to", *"abcdfghij"]) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "unk_token": "[UNK]"}))
    found = load_tokenizer(folder)
    assert found.vocab_size == len(PIECES) + (0 if file else 13)
    assert found.encode(text) == ([5, 6] if file else [6, 6])
    if file:
        theirs = AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]
        assert found.encode(text) == theirs
    assert load_tokenizer(folder / "vocab.txt").vocab_size == len(PIECES) + 13
    normalized = written(tmp_path / "other", normalizers.BertNormalizer(handle_chinese_chars=False))
    (normalized / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    (normalized / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    chinese: Any = load_tokenizer(normalized)
    assert chinese.chinese is not file


@pytest.mark.parametrize("changes", [{"do_lower_case": False}, {"keep_accents": True}], ids=str)
@pytest.mark.parametrize("name", ["AlbertTokenizer", "PreTrainedTokenizerFast"])
def test_settings_of_an_albert_beside_tokenizer_json_count_too(
    name: str, changes: dict[str, bool], shared_data: Path, tmp_path: Path
) -> None:
    from transformers import AlbertTokenizer, AutoTokenizer

    AlbertTokenizer.from_pretrained(shared_data / "tokenizers" / "albert-en-30k").save_pretrained(tmp_path)
    plain = load_tokenizer(tmp_path)
    changed(tmp_path / "tokenizer_config.json", tokenizer_class=name, **changes)
    found, text = load_tokenizer(tmp_path), "A Café HERE"
    assert (
        found.encode(text)
        == AutoTokenizer.from_pretrained(tmp_path)(text, add_special_tokens=False)["input_ids"]
    )
    assert (found.encode(text) != plain.encode(text)) == (name == "AlbertTokenizer")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"byte_fallback": True, "vocab_size": 600}, PieceType.BYTE),
        ({"control_symbols": ["[CLS]", "[SEP]", "[MASK]", "<e1>"]}, PieceType.CONTROL),
    ],
)
def test_kinds_of_tokens_are_read_from_tokenizer_json(
    settings: dict[str, Any], kind: PieceType, tmp_path: Path
) -> None:
    tokenizer = sentencepiece(**settings)
    assert kind in {piece.type for piece in tokenizer.proto.pieces}
    tokenizer.save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    again = load_tokenizer(tmp_path)
    assert isinstance(again, SentencePieceTokenizer) and again.proto.pieces == tokenizer.proto.pieces
    for text in ("the cat <e1> sat 龘", "<0x41>"):
        assert again.encode(text) == tokenizer.encode(text)
        assert again.special_ids == tokenizer.special_ids


def test_the_end_of_a_paragraph_of_xlnet_stays_in_text(shared_data: Path, tmp_path: Path) -> None:
    """Published tokenizer.json files call <eop> special; spiece.model has it as a piece of text."""
    xlnet = load_tokenizer(shared_data / "tokenizers" / "xlnet-en-32k")
    xlnet.save(tmp_path)
    (tmp_path / "spiece.model").unlink()
    entries = [{"id": xlnet.piece_to_id(p), "content": p, "special": True} for p in ("<eop>", "<eod>")]
    changed(tmp_path / "tokenizer.json", added_tokens=entries)
    again = load_tokenizer(tmp_path)
    assert again.special_ids == xlnet.special_ids
    assert again.encode("one <eop> two") == xlnet.encode("one <eop> two")


SPLIT = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    ],
}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps({"model": {"type": "WordPiece", "vocab": {"a": "x", "b": 1}}}),
        json.dumps({"model": {"type": "Unigram", "vocab": [[]]}}),
        json.dumps({"model": {"type": "Unigram", "vocab": [["a", "b"]]}, "pre_tokenizer": SPLIT}),
        json.dumps({"model": {"type": "Unigram", "vocab": [["a", 1e300]]}, "pre_tokenizer": SPLIT}),
        json.dumps({"model": {"type": "Unigram", "vocab": [["\ud800", -1.0]]}, "pre_tokenizer": SPLIT}),
    ],
    ids=lambda text: text[:60],
)
def test_a_damaged_tokenizer_json_is_one_message(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(TokenizerError, match="is not a tokenizer of the tokenizers library"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("unknown", "charsmap", "message"),
    [(PieceType.NORMAL, b"", "unk is not defined"), (PieceType.UNKNOWN, b"\x01", "rule is broken")],
)
def test_a_damaged_sentencepiece_model_is_one_message(
    unknown: PieceType, charsmap: bytes, message: str, tmp_path: Path
) -> None:
    """Tokens that the library finds and the scan of its vocabulary does not."""
    kinds = {"<unk>": unknown, "a": PieceType.NORMAL}
    names = [*("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"), "a"]
    pieces = [Piece(name, -1.0, kinds.get(name, PieceType.CONTROL)) for name in names]
    (tmp_path / "spiece.model").write_bytes(serialize_model(pieces, charsmap))
    with pytest.raises(TokenizerError, match=f"is not a whole SentencePiece model.*{message}") as caught:
        load_tokenizer(tmp_path)
    assert "spiece.model: " in str(caught.value)


def test_a_folder_in_place_of_a_vocabulary_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").mkdir()
    with pytest.raises(TokenizerError, match=r"vocab\.txt: cannot be read"):
        load_tokenizer(tmp_path)


def test_a_deep_file_beside_a_vocabulary_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    (tmp_path / "tokenizer.json").write_text("[" * 100_000)
    with pytest.raises(TokenizerError, match="not readable as JSON"):
        load_tokenizer(tmp_path)


def test_a_cased_vocabulary_without_a_setting_is_lowercased_as_in_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    (tmp_path / "vocab.txt").write_text("\n".join([*PIECES, "Berlin", "Paris", "berlin"]) + "\n")
    assert load_tokenizer(tmp_path).encode("Berlin") == [len(PIECES)]  # as of Google's
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)("Berlin", add_special_tokens=False)["input_ids"]
    assert load_tokenizer(tmp_path).encode("Berlin") == theirs == [len(PIECES) + 2]


def test_the_class_may_stand_in_the_models_file(tmp_path: Path) -> None:
    folder = written(tmp_path, normalizers.BertNormalizer(lowercase=False))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    config = {"model_type": "bert", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "config.json").write_text(json.dumps(config))
    assert load_tokenizer(folder).encode("Hello hello") == [5, 6]


def named(folder: Path, name: str, **settings: Any) -> Path:
    """The folder, with a configuration that names a class."""
    config = {"tokenizer_class": name, "unk_token": "[UNK]", **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "around",
    [AROUND, processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), processors.Sequence([AROUND])],
    ids=lambda around: type(around).__name__,
)
def test_special_tokens_around_a_text_are_those_of_the_file(around: Any, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = named(written(tmp_path, post_processor=around), "PreTrainedTokenizerFast")
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    for texts in (("hello world",), ("hello", "world")):
        wanted = theirs(*texts, return_token_type_ids=True)
        assert all(ours(*texts)[part] == wanted[part] for part in ("input_ids", "token_type_ids"))


@pytest.mark.parametrize(
    ("around", "message"),
    [
        (None, "none"),
        (processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)), "RobertaProcessing"),
        (processors.BertProcessing(("[SEP]", 2), ("[CLS]", 3)), "BertProcessing"),
        (processors.Sequence([AROUND, AROUND]), "TemplateProcessing, TemplateProcessing"),
        *(
            (
                processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids),
                "TemplateProcessing",
            )
            for single, pair, ids in (
                ("$A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)]),
                ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0", [("[CLS]", 2), ("[SEP]", 3)]),
                ("[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", [("[CLS]", 4), ("[SEP]", 3)]),
            )
        ),
    ],
)
def test_other_special_tokens_around_a_text_are_refused_where_the_file_counts(
    around: Any, message: str, tmp_path: Path
) -> None:
    """Catches: [CLS] and [SEP] where the model was trained without, or with others."""
    folder = named(written(tmp_path, post_processor=around), "TokenizersBackend")
    with pytest.raises(TokenizerError, match=rf"than BertTokenizer does \(post_processor: {message}\)"):
        load_tokenizer(folder)
    assert load_tokenizer(named(folder, "BertTokenizer"))("hello")["input_ids"] == [2, 6, 3]


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "AlbertTokenizer"])
def test_the_tokenizer_class_decides_whether_spiece_model_counts(name: str, tmp_path: Path) -> None:
    """Catches: a cased vocabulary of others, lowercased because no setting forbids it."""
    from transformers import AutoTokenizer

    plain, text = sentencepiece(), "The CAT sat on 3 old Tables"
    library = unigram(tmp_path, [], WORDS)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", plain.cls_id), ("[SEP]", plain.sep_id)],
    )
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "spiece.model").write_bytes(plain.model)
    found = load_tokenizer(named(tmp_path, name, unk_token="<unk>"))
    if name == "AlbertTokenizer":
        assert found.encode(text) == plain.encode(text)
        return
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert found.encode(text) == theirs(text, add_special_tokens=False)["input_ids"] != plain.encode(text)
    # A tokenizer saved by this package is read from its own model, bit by bit.
    plain.save(tmp_path / "ours")
    assert load_tokenizer(tmp_path / "ours").fingerprint == plain.fingerprint


STRIPPED = {"content": "world", "lstrip": True, "normalized": False, "__type": "AddedToken"}


def listed(*names: str) -> dict[str, Any]:
    return {"additional_special_tokens": list(names)}


@pytest.mark.parametrize(
    ("config", "special"),
    [
        (listed("[E1]", "world"), {}),
        ({"extra_special_tokens": ["world"]}, {}),
        ({"extra_special_tokens": {"entity_token": "world", "other_token": "[E1]"}}, {}),
        ({}, listed("world")),
        ({"additional_special_tokens": [STRIPPED]}, {}),
        ({"added_tokens_decoder": {}}, listed("world")),
    ],
    ids=str,
)
@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_tokens_that_are_only_listed_as_special_are_kept_whole(
    file: str, config: dict[str, Any], special: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    folder, text = written(tmp_path), "helloworld hell Worldo world [E1]"
    if file == "vocab.txt":
        (folder / "tokenizer.json").unlink()
        (folder / file).write_text("\n".join(PIECES) + "\n")
    named(folder, "BertTokenizer", do_lower_case=True, **config)
    (folder / "special_tokens_map.json").write_text(json.dumps(special))
    found = load_tokenizer(folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    cut = text.replace(" [E1]", "")  # which is in no vocabulary, and has no row in a model
    assert found.vocab_size == len(PIECES)
    assert found.encode(cut) == theirs(cut, add_special_tokens=False)["input_ids"]
    assert (PIECES.index("world") in found.encode("helloworldo")) == ("added_tokens_decoder" not in config)
    found.save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").fingerprint == found.fingerprint


def test_listed_tokens_of_a_sentencepiece_are_saved_as_found(tmp_path: Path) -> None:
    """In the order of their ids, not of the list or the alphabet."""
    plain = sentencepiece()
    plain.save(tmp_path)
    ids = (i for i in range(plain.vocab_size) if i not in plain.special_ids)
    odd = [name for i in ids if i not in plain.encode(name := plain.id_to_piece(i))]
    first, last = next((a, b) for a, b in combinations(odd, 2) if b < a)
    changed(tmp_path / "tokenizer_config.json", additional_special_tokens=[last, first])
    found: Any = load_tokenizer(tmp_path)
    assert [piece.content for piece in found.whole] == [first, last]
    assert found.encode(f"a {last} b") == [*plain.encode("a"), plain.piece_to_id(last), *plain.encode("b")]
    found.save(tmp_path / "copy")
    assert load_tokenizer(tmp_path / "copy").fingerprint == found.fingerprint
