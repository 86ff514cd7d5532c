"""What tokenizers promise: golden ids, model input, decoding, loading, and plain words for mistakes."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import Piece, PieceType, parse_model, serialize_model
from albertine.tokenizers.word_cache import WordCache
from albertine.tokenizers.wordpiece import WordPieceTokenizer

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(
        "我",
        "爱",
        "北",
        "京",
        "，",
        "。",
        "the",
        "un",
        "##aff",
        "##able",
        "cat",
        "##s",
        "(",
        ")",
        ",",
        "Cat",
        "é",
        "e",
    ),
]


@pytest.fixture(scope="module")
def albert(shared_data: Path) -> Tokenizer:
    return load_tokenizer(shared_data / "tokenizers" / "albert-en-30k")


@pytest.fixture(scope="module")
def xlnet(shared_data: Path) -> Tokenizer:
    return load_tokenizer(shared_data / "tokenizers" / "xlnet-en-32k")


@pytest.fixture(scope="module")
def chinese(shared_data: Path) -> Tokenizer:
    return load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")


@pytest.fixture
def small() -> WordPieceTokenizer:
    return WordPieceTokenizer(VOCABULARY)


def small_unigram() -> SentencePieceTokenizer:
    names = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [Piece(n, 0.0, PieceType.UNKNOWN if n == "<unk>" else PieceType.CONTROL) for n in names]
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz0123456789,."]
    pieces += [Piece(c, -5.0, PieceType.NORMAL) for c in letters]
    pieces += [Piece(p, -4.0, PieceType.NORMAL) for p in ("▁the", "▁cat", "000", "00,", "▁1")]
    return SentencePieceTokenizer(serialize_model(pieces, b""))


def spelled(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.id_to_piece(i) for i in tokenizer.encode(text)]


def test_the_ids_of_the_reference_file(albert: Tokenizer, xlnet: Tokenizer) -> None:
    assert albert.encode("this is a test") == albert.encode("This is a test") == [48, 25, 21, 1289]
    text = "I was born in 92000, and this is falsé."
    assert spelled(albert, text) == [
        "▁i",
        "▁was",
        "▁born",
        "▁in",
        "▁9",
        "2000",
        ",",
        "▁and",
        "▁this",
        "▁is",
        "▁false",
        ".",
    ]
    assert albert.encode(text) == [31, 23, 386, 19, 561, 3050, 15, 17, 48, 25, 4997, 9]
    assert (albert.pad_id, albert.unk_id, albert.cls_id, albert.sep_id, albert.mask_id) == (0, 1, 2, 3, 4)
    assert albert.special_ids == frozenset(range(5))
    assert xlnet.encode("In 1991, the remains of Russian Tsar")[:5] == [67, 2840, 19, 18, 1484]
    assert {xlnet.cls_id, xlnet.sep_id, xlnet.pad_id, xlnet.mask_id, 1, 2, 7} <= xlnet.special_ids


def test_chinese_characters_are_words(chinese: Tokenizer) -> None:
    assert chinese.kind == "wordpiece"
    assert (chinese.pad_id, chinese.unk_id, chinese.cls_id, chinese.sep_id, chinese.mask_id) == (
        0,
        100,
        101,
        102,
        103,
    )
    assert chinese.encode("北京 is 大的, ok") == [1266, 776, 8310, 1920, 4638, 117, 8270]


def test_digits_give_up_their_comma_and_only_they() -> None:
    tokenizer = small_unigram()
    # cut alone, "00," would be one piece, and so would 000; the rule comes after the cut, as in the reference
    assert spelled(tokenizer, "1000,") == ["▁1", "0", "0", "0", ","]
    assert spelled(tokenizer, "cat, 1") == ["▁cat", ",", "▁1"]


def test_quotes_stay_as_google_leaves_them_and_are_replaced_on_demand(shared_data: Path) -> None:
    data = (shared_data / "tokenizers" / "albert-en-30k" / "spiece.model").read_bytes()
    google, xlnet_way = (
        SentencePieceTokenizer(data),
        SentencePieceTokenizer(data, Cleaning(replace_quotes=True)),
    )
    assert spelled(google, "``quoted''") == ["▁", "<unk>", "quo", "ted", "'", "'"]
    assert xlnet_way.encode("``quoted''") == google.encode('"quoted"')
    assert google.fingerprint != xlnet_way.fingerprint


def test_special_tokens_in_text_count_only_in_model_input(albert: Tokenizer, chinese: Tokenizer) -> None:
    ids = albert("Paris is the [MASK] of France.")["input_ids"]
    assert ids == [2, 1162, 25, 14, 4, 16, 714, 9, 3]
    assert albert.mask_id not in albert.encode("Paris is the [MASK] of France.")
    assert spelled(albert, "[MASK]") == ["▁[", "mask", "]"]
    assert chinese("巴黎是[MASK]国的首都")["input_ids"].count(chinese.mask_id) == 1
    assert chinese.mask_id not in chinese.encode("[MASK]")


def test_pairs_always_have_segments(small: WordPieceTokenizer, albert: Tokenizer, xlnet: Tokenizer) -> None:
    one = small("the cats", "我爱")
    assert one == {
        "input_ids": [2, 11, 15, 16, 3, 5, 6, 3],
        "attention_mask": [1] * 8,
        "token_type_ids": [0, 0, 0, 0, 0, 1, 1, 1],
    }
    assert albert("a", "b")["token_type_ids"] == [0, 0, 0, 1, 1]
    assert albert("a")["token_type_ids"] == [0, 0, 0]
    a, b = xlnet.encode("a"), xlnet.encode("b")
    assert xlnet("a", "b")["input_ids"] == [*a, xlnet.sep_id, *b, xlnet.sep_id, xlnet.cls_id]
    assert xlnet("a", "b")["token_type_ids"] == [0] * (len(a) + 1) + [1] * (len(b) + 1) + [2]


def test_lists_pairs_padding_and_tensors(small: WordPieceTokenizer, xlnet: Tokenizer) -> None:
    several = small(["the", "the cats"], padding=True)
    assert several["input_ids"] == [[2, 11, 3, 0, 0], [2, 11, 15, 16, 3]]
    assert several["attention_mask"] == [[1, 1, 1, 0, 0], [1] * 5]
    assert small([("the", "cat"), ("cat", "the")]) == small(["the", "cat"], ["cat", "the"])
    assert small(["the"], padding="max_length", max_length=6)["input_ids"] == [[2, 11, 3, 0, 0, 0]]
    tensors = small(["the", "the cats"], return_tensors="pt")
    assert tensors["input_ids"].dtype == torch.long and tensors["input_ids"].shape == (2, 5)
    assert small("the", return_tensors="np")["attention_mask"].tolist() == [[1, 1, 1]]
    left = xlnet(["a", "a b c"], padding=True)
    assert left["input_ids"][0][:2] == [xlnet.pad_id] * 2 and left["token_type_ids"][0][:2] == [3, 3]
    assert small([], padding=True)["input_ids"] == []


@pytest.mark.parametrize("words", [(20, 3), (3, 20), (20, 20), (7, 6)])
def test_truncation_shortens_the_longer_segment(small: WordPieceTokenizer, words: tuple[int, int]) -> None:
    a, b = (" ".join(["the"] * n) for n in words)
    ids, segments = small(a, b, max_length=15)["input_ids"], small(a, b, max_length=15)["token_type_ids"]
    first, second = ids.index(3) - 1, len(ids) - ids.index(3) - 2
    assert len(ids) == min(15, sum(words) + 3) and segments == [0] * (first + 2) + [1] * (second + 1)
    shorter = min(words)
    assert min(first, second) >= min(shorter, 6) and first <= words[0] and second <= words[1]
    if sum(words) > 12:
        # nothing was taken from a segment that was not the longer one
        assert abs(first - second) <= 1 or min(first, second) == shorter
    assert len(small(a, max_length=5)["input_ids"]) == 5


def test_invalid_calls_raise_errors(small: WordPieceTokenizer) -> None:
    with pytest.raises(TokenizerError, match="differ in number"):
        small(["a", "b"], ["c"])
    with pytest.raises(TokenizerError, match="cannot have a list"):
        small("a", ["c"])
    with pytest.raises(TokenizerError, match="not a text"):
        small([1])  # type: ignore[list-item]
    with pytest.raises(TokenizerError, match="no room"):
        small("a", max_length=2)
    with pytest.raises(TokenizerError, match="needs max_length"):
        small("a", padding="max_length")
    with pytest.raises(TokenizerError, match="no token 999"):
        small.id_to_piece(999)
    with pytest.raises(TokenizerError, match="`tf`"):
        small("a", return_tensors="tf")  # type: ignore[arg-type]


def test_what_is_no_list_of_texts_is_refused(small: WordPieceTokenizer) -> None:
    """Catches: the names of the columns of a table, encoded in place of its texts."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    columns = {"text": ["a man"]}
    for given in (pd.DataFrame(columns), pa.table(columns), columns, None, float("nan")):
        message = f"a {type(given).__name__} is no list of texts. Give .* one column of a table"
        with pytest.raises(TokenizerError, match=message):
            small(given)
    with pytest.raises(TokenizerError, match="a DataFrame is no list of texts"):
        small(["a"], pd.DataFrame(columns))
    with pytest.raises(TokenizerError, match=r"^texts\[1\]: .* is not a text or a pair"):
        small(pd.Series(["a", None]))
    assert small(pd.Series(["a"])) == small(["a"])


def test_words_start_where_those_of_the_reference_do(albert: Tokenizer, small: WordPieceTokenizer) -> None:
    marks = {
        "▁the": True,
        "s": False,
        "ing": False,
        ",": True,
        "'": True,
        "£": True,
        "2000": True,
        "<unk>": True,
    }
    starts = albert.word_starts([albert.piece_to_id(p) for p in marks])
    assert starts.dtype == np.bool_ and starts.tolist() == list(marks.values())
    # letters and punctuation in one piece are plain English: it goes on
    assert small_unigram().word_starts([small_unigram().piece_to_id(p) for p in ("a", "00,")]).tolist() == [
        False,
        True,
    ]
    assert small.word_starts(small.encode("unaffable cats")).tolist() == [True, False, False, True, False]


def test_spans_point_into_the_given_text(albert: Tokenizer, small: WordPieceTokenizer) -> None:
    text = "I was  born ½ in 92000, and ﬁsh falsé ¨x."
    ids, starts, ends = albert.encode_spans(text)
    assert ids == albert.encode(text)
    cut = [text[a:b] for a, b in zip(starts, ends, strict=True)]
    assert cut == ["I", "was", "born", "½", "½", "½", "in", "9", "2000", ",", "and", "ﬁsh", "falsé", "x", "."]
    ids, starts = small.encode_with_offsets(" 我爱 Cats")
    assert (ids, starts) == ([5, 6, 15, 16], [1, 2, 4, 7])


def test_a_token_ends_behind_the_marks_of_its_last_character(
    albert: Tokenizer, small: WordPieceTokenizer
) -> None:
    """Decomposed text: a name that ends in an accent is a name of whole tokens."""
    text = "the caffe\u0301\u0323 cats"
    for tokenizer in (albert, small):
        ids, starts, ends = tokenizer.encode_spans(text)
        assert ids == tokenizer.encode(text)
        assert "caffe\u0301\u0323" in {text[a:b] for a in starts for b in ends}
        assert all(a <= b for a, b in zip(starts, ends, strict=True))
        assert all(end <= after for end, after in zip(ends, starts[1:], strict=False))


def test_lone_surrogates_count_as_the_replacement_character(
    albert: Tokenizer, small: WordPieceTokenizer
) -> None:
    assert albert.encode("a \ud800b") == albert.encode("a \ufffdb")
    assert small.encode("the \udfff 我") == small.encode("the \ufffd 我") == [11, 5]
    assert len(small.encode_spans("the \udfff 我").ids) == 2
    assert albert.encode_spans("a \ud800b").ids == albert.encode("a \ud800b")


def test_decoding_is_readable(albert: Tokenizer, chinese: Tokenizer) -> None:
    assert albert.decode(albert("The cat, it seems, sat.")["input_ids"]) == "the cat, it seems, sat."
    assert albert.decode([2, 48, 4, 25, 3], skip_special=False) == "[CLS] this [MASK] is [SEP]"
    assert (
        chinese.decode(chinese("我爱北京 unaffable, iPhone 12。")["input_ids"])
        == "我爱北京unaffable, iphone 12。"
    )
    assert chinese.decode([101, 103, 102], skip_special=False) == "[CLS] [MASK] [SEP]"
    assert chinese.decode([]) == "" and albert.decode([]) == ""


def test_quotes_open_and_close_in_turn_in_what_is_decoded() -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    small = WordPieceTokenizer([*special, "he", "said", '"', "yes", ",", "no", ".", "好", ""])
    for text in ('he said "yes, no". "yes" he said', '"no" said he', "he said 好"):
        assert small.decode(small.encode(text)) == text.replace(" 好", "好")
    empty = small.piece_to_id("")
    assert small.decode([empty, 5, empty, 6, empty]) == "he said"


def test_settings_change_ids_and_fingerprint() -> None:
    lower, cased = WordPieceTokenizer(VOCABULARY), WordPieceTokenizer(VOCABULARY, lower=False)
    assert lower.encode("Cat é") == [15, 22] and cased.encode("Cat é") == [20, 21]
    assert WordPieceTokenizer(VOCABULARY, strip_accents=False).encode("é") == [21]
    assert WordPieceTokenizer(VOCABULARY, chinese=False).encode("我爱") == [1]
    prints = {lower.fingerprint, cased.fingerprint, WordPieceTokenizer(VOCABULARY, chinese=False).fingerprint}
    assert len(prints) == 3
    assert WordPieceTokenizer(VOCABULARY, strip_accents=True).fingerprint == lower.fingerprint
    assert WordPieceTokenizer([*VOCABULARY, "x"]).fingerprint != lower.fingerprint
    assert lower.fingerprint.startswith("d7e639180af17547")  # prepared corpora name it: never change it


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    for kind, tokenizer in (
        ("w", WordPieceTokenizer(VOCABULARY, lower=False, strip_accents=True)),
        ("s", small_unigram()),
    ):
        tokenizer.save(tmp_path / kind)
        again = load_tokenizer(tmp_path / kind)
        assert again.kind == tokenizer.kind and again.fingerprint == tokenizer.fingerprint
        text = "The Cats (我爱北京) 1,000, é"
        assert again.encode(text) == tokenizer.encode(text)
        assert sorted(p.name for p in (tmp_path / kind).iterdir()) == sorted(
            ["tokenizer.json", "tokenizer_config.json", "vocab.txt" if kind == "w" else "spiece.model"]
        )
    with pytest.raises(TokenizerError, match="two tokenizers"):
        small_unigram().save(tmp_path / "w")


def test_only_tokenizer_json_is_enough(tmp_path: Path, albert: Tokenizer) -> None:
    for name, tokenizer in (("a", albert), ("w", WordPieceTokenizer(VOCABULARY, lower=False, chinese=False))):
        folder = tmp_path / name
        tokenizer.save(folder)
        (folder / ("spiece.model" if name == "a" else "vocab.txt")).unlink()
        again = load_tokenizer(folder)
        for text in ("The ``Cats'' (我爱) in 92000, and 1,000, é", "I was born in 2000, and"):
            assert again.encode(text) == tokenizer.encode(text)
        if isinstance(albert, SentencePieceTokenizer) and isinstance(again, SentencePieceTokenizer):
            assert again.proto.pieces == albert.proto.pieces and again.proto.charsmap == albert.proto.charsmap


def test_a_chinese_albert_folder_gets_wordpiece(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "albert"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "AlbertTokenizer"}))
    assert load_tokenizer(tmp_path).kind == "wordpiece"


@pytest.mark.parametrize(
    ("beside", "model", "refused"),
    [
        ({}, {"model_type": "bert"}, None),
        ({"tokenizer_class": "ElectraTokenizerFast"}, {"model_type": "electra"}, None),
        ({"tokenizer_class": "DistilBertTokenizer"}, {}, None),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, {}, None),
        ({"tokenizer_class": "RoFormerTokenizer"}, {}, "RoFormerTokenizer"),
        (
            {"tokenizer_class": "RoFormerTokenizerFast"},
            {"tokenizer_class": "BertTokenizer"},
            "RoFormerTokenizer",
        ),
        ({"do_lower_case": True}, {"model_type": "roformer"}, "RoFormerTokenizer"),
        ({"tokenizer_class": "BertTokenizer"}, {"model_type": "roformer"}, None),
        ({}, {"model_type": "roformer", "tokenizer_class": "BertTokenizer"}, None),
        ({}, {"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ({"tokenizer_class": "MPNetTokenizer"}, {}, "MPNetTokenizer"),
    ],
    ids=str,
)
def test_a_class_that_may_cut_otherwise_is_refused(
    beside: dict[str, Any], model: dict[str, Any], refused: str | None, tmp_path: Path
) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps(model))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(beside))
    if refused is None:
        assert load_tokenizer(tmp_path).kind == "wordpiece"
        return
    with pytest.raises(TokenizerError, match=refused) as caught:
        load_tokenizer(tmp_path)
    assert '"tokenizer_class": "BertTokenizer"' in str(caught.value)


def test_settings_beside_the_vocabulary_are_honoured(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\r\n".join(VOCABULARY) + "\r\n", encoding="utf-8-sig")
    config = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path / "vocab.txt")
    assert tokenizer.encode("Cat é 我爱") == [20, 22, 1]
    spiece = tmp_path / "other"
    small_unigram().save(spiece)
    (spiece / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert load_tokenizer(spiece).encode("THE") != load_tokenizer(spiece).encode("the")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("vocab.txt", b"", "is empty"),
        ("vocab.txt", "\n".join(VOCABULARY).encode("utf-16"), "not UTF-8"),
        ("vocab.txt", b"the\ncat\n", r"without \[PAD\], \[UNK\], \[CLS\], \[SEP\], \[MASK\]"),
        ("vocab.txt", "\n".join([*VOCABULARY, "cat"]).encode(), "'cat' twice, in lines 16 and 24"),
        ("spiece.model", b"not a model", "not a SentencePiece model"),
        (
            "spiece.model",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
            "not a SentencePiece model",
        ),
        ("spiece.model", serialize_model([Piece("<unk>", 0.0, PieceType.UNKNOWN)], b""), "lacks the tokens"),
        ("tokenizer.json", b"{}", "not a tokenizer"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {}}}', "holds a BPE model"),
        ("tokenizer.json", b'{"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 2}}}', "ids with gaps"),
    ],
)
def test_broken_vocabularies_are_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(tmp_path)
    assert name in str(caught.value)


def test_missing_and_ambiguous_vocabularies(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no such file"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    for name in ("a.model", "b.model"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(TokenizerError, match="several vocabularies"):
        load_tokenizer(tmp_path)


def test_a_cut_off_model_is_refused(shared_data: Path) -> None:
    data = (shared_data / "tokenizers" / "albert-en-30k" / "spiece.model").read_bytes()
    with pytest.raises(TokenizerError, match="not a SentencePiece model"):
        SentencePieceTokenizer(data[:200_001])


def test_the_model_file_is_read_as_the_library_reads_it(shared_data: Path) -> None:
    from sentencepiece import SentencePieceProcessor

    data = (shared_data / "tokenizers" / "albert-en-30k" / "spiece.model").read_bytes()
    proto, library = parse_model(data), SentencePieceProcessor(model_proto=data)
    assert len(proto.pieces) == library.get_piece_size() == 30_000
    assert len(proto.charsmap) == 237_539 and proto.normalizer == "nmt_nfkc" and proto.splits_at_spaces
    for i in [*range(20), *range(20, 30_000, 501)]:
        piece = proto.pieces[i]
        assert (piece.text, piece.score) == (library.id_to_piece(i), library.get_score(i))
        assert (piece.type is PieceType.CONTROL) == library.is_control(i)


def test_a_copy_works_and_starts_with_an_empty_cache(albert: Tokenizer, small: WordPieceTokenizer) -> None:
    for tokenizer in (albert, small):
        tokenizer.encode("the cat")
        twin = copy.deepcopy(tokenizer)
        assert (
            twin.encode("the cat") == tokenizer.encode("the cat")
            and twin.fingerprint == tokenizer.fingerprint
        )


def test_the_word_cache_stays_small_and_keeps_what_is_used() -> None:
    computed: list[str] = []

    def compute(word: str) -> tuple[int, ...]:
        computed.append(word)
        return (len(word),)

    cache = WordCache(compute, limit=10)
    for i in range(100):
        assert cache["often"] == (5,)
        assert cache[f"word{i}"] == (len(f"word{i}"),)
        assert len(cache) + len(cache.old) <= 20
    assert computed.count("often") == 1
    assert cache["x" * 1000] == (1000,) and "x" * 1000 not in cache


def test_no_blank_is_put_beside_marks_of_chinese_nor_into_a_number() -> None:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    marks = ["他", "等", "亿", "…", "—", "“", "”", "·", "nba", "3", "5", "."]
    small = WordPieceTokenizer([*special, *marks])
    for text in ("他等……", "他——等", "“nba”", "nba·等", "3.5亿", "他“nba”等……"):
        assert small.decode(small.encode(text)) == text


def test_a_variation_selector_belongs_to_the_token_before_it() -> None:
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "我", "❤")
    found = WordPieceTokenizer(pieces).encode_spans("我❤\ufe0f我")
    assert (found.starts, found.ends) == ([0, 1, 3], [1, 3, 4])


@pytest.mark.parametrize("where", ["added_tokens.json", "tokenizer_config.json"])
def test_many_added_tokens_are_loaded_in_seconds(tmp_path: Path, where: str) -> None:
    """Catches: a list is searched for each of them, which takes minutes for 50,000."""
    small_wordpiece = WordPieceTokenizer(VOCABULARY)
    small_wordpiece.save(tmp_path)
    count, first = 50_000, len(VOCABULARY)
    ids = {f"[E{i}]": first + i for i in range(count)}
    if where == "added_tokens.json":
        (tmp_path / where).write_text(json.dumps(ids))
    else:
        tree = json.loads((tmp_path / where).read_text())
        tree["added_tokens_decoder"] = {str(i): {"content": text} for text, i in ids.items()}
        (tmp_path / where).write_text(json.dumps(tree))
    (tmp_path / "tokenizer.json").unlink(missing_ok=True)
    begin = time.process_time()
    tokenizer = load_tokenizer(tmp_path)
    assert time.process_time() - begin < 20
    assert tokenizer.vocab_size == first + count
    assert tokenizer.encode("cat [E49999]") == [VOCABULARY.index("cat"), first + 49_999]
