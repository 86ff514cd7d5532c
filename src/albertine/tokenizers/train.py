"""Train vocabularies: SentencePiece as for ALBERT and XLNet, WordPiece as for BERT and Chinese ALBERT.

The result is a function of sentences and settings: the same text gives the same bytes on any machine with the
same libraries. Memory is bounded for any length of text.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning, well_formed
from albertine.tokenizers.sentencepiece import ALBERT, XLNET, XLNET_CLEANING, SentencePieceTokenizer
from albertine.tokenizers.wordpiece import BERT, WordPieceTokenizer

Progress = Callable[[int], None]

USER_DEFINED = ("(", ")", '"', "-", ".", "–", "£", "€")
ALBERT_PIECES: dict[str, Any] = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "pad_piece": ALBERT.pad,
    "unk_piece": ALBERT.unk,
    "control_symbols": [ALBERT.cls, ALBERT.sep, ALBERT.mask],
    "user_defined_symbols": list(USER_DEFINED),
}
XLNET_PIECES: dict[str, Any] = {
    "pad_id": -1,  # its <pad> is a control piece like the others
    "unk_id": 0,
    "bos_id": 1,
    "eos_id": 2,
    "control_symbols": [XLNET.cls, XLNET.sep, XLNET.pad, XLNET.mask, "<eod>"],
    "user_defined_symbols": ["<eop>", *USER_DEFINED],
}
SAMPLE = 10_000_000  # sentences
MAX_SENTENCE_BYTES = 4192  # SentencePiece silently skips longer sentences
THREADS = 4  # fixed: EM sums floats by thread, so the number of threads changes the vocabulary
REPORT_EVERY = 10_000

MAX_WORDS = 2_000_000  # distinct words kept while counting
MAX_TRAINER_WORDS = 10_000_000  # word occurrences passed to the WordPiece trainer


class VocabularyTooLarge(TokenizerError):
    """The text has fewer tokens than requested; `largest` is the largest possible size."""

    def __init__(self, vocab_size: int, largest: int) -> None:
        self.largest = largest
        super().__init__(
            f"the text is too short for a vocabulary of {vocab_size:,} tokens; "
            f"the largest possible is {largest:,}",
            remedy=f"Give more text, or set vocab_size (--vocab-size) to {largest} or less",
        )


class VocabularyTooSmall(TokenizerError):
    """The characters of the text alone need more tokens than requested: `smallest`."""

    def __init__(self, vocab_size: int, smallest: int) -> None:
        self.smallest = smallest
        super().__init__(
            f"a vocabulary of {vocab_size:,} tokens is too small: "
            f"the characters of the text take {smallest:,}",
            remedy=f"Set vocab_size (--vocab-size) to at least {smallest}",
        )


def train_sentencepiece(
    sentences: Iterable[str],
    folder: str | Path,
    vocab_size: int = 30_000,
    *,
    cleaning: Cleaning | None = None,
    cls_last: bool = False,
    character_coverage: float = 0.99995,
    sample: int = SAMPLE,
    progress: Progress | None = None,
) -> SentencePieceTokenizer:
    """Train and save a SentencePiece unigram vocabulary as ALBERT's: <pad> 0, <unk> 1, [CLS] 2, [SEP] 3,
    [MASK] 4; or as XLNet's, cased and with the special tokens and ids of the released one.

    The settings are those in google-research/albert's README. Sentences are cleaned first. Of more than
    `sample` sentences SentencePiece uses a random sample with a fixed seed.

    Args:
        sentences: text, read once.
        folder: for `spiece.model`, `tokenizer.json` and `tokenizer_config.json`.
        vocab_size: number of tokens, special ones included.
        cleaning: of training text and of the tokenizer; default ALBERT's or XLNet's.
        cls_last: train XLNet's vocabulary, whose inputs end with <sep> <cls>.
        character_coverage: share of character occurrences covered by single-character tokens.
        sample: maximum number of sentences to train on.
        progress: called with the number of sentences read, every 10,000.

    Raises:
        TokenizerError: no text, or a vocabulary too large or too small for it.
    """
    from sentencepiece import SentencePieceTrainer

    cleaning = cleaning or (XLNET_CLEANING if cls_last else Cleaning())
    feed = _Feed(_clean(_count(sentences, progress), cleaning))
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=feed,
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            **(XLNET_PIECES if cls_last else ALBERT_PIECES),
            shuffle_input_sentence=True,
            input_sentence_size=sample,
            character_coverage=character_coverage,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=THREADS,
            minloglevel=2,
        )
    except (RuntimeError, OSError, ValueError) as error:
        if feed.error:
            raise feed.error from None
        if not feed.started:
            raise _no_text() from error
        raise _too_large_or_small(error, vocab_size) from error
    tokenizer = SentencePieceTokenizer(model.getvalue(), cleaning)
    tokenizer.save(folder)
    return tokenizer


def train_wordpiece(
    sentences: Iterable[str],
    folder: str | Path,
    vocab_size: int = 21_128,
    *,
    lower: bool = True,
    strip_accents: bool | None = None,
    chinese: bool = True,
    character_coverage: float = 0.9999,
    min_frequency: int = 2,
    progress: Progress | None = None,
) -> WordPieceTokenizer:
    """Train and save a WordPiece vocabulary.

    Its order: [PAD] [UNK] [CLS] [SEP] [MASK] (0 to 4), single characters by frequency, their `##` forms, then
    longer tokens in the order of the trainer of `tokenizers`. Chinese characters are words, without `##`
    forms.

    Args:
        sentences: text, read once. Only word counts are kept; beyond two million distinct words the rarest
            are dropped.
        folder: for `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`.
        vocab_size: number of tokens, special ones included.
        lower, strip_accents, chinese: as in `WordPieceTokenizer`.
        character_coverage: share of character occurrences covered by single-character tokens.
        min_frequency: minimum occurrences of a pair of tokens to be merged.
        progress: called with the number of sentences read, every 10,000.

    Raises:
        TokenizerError: no text, or a vocabulary too large or too small for it.
    """
    rules = WordPieceTokenizer(
        list(vars(BERT).values()), lower=lower, strip_accents=strip_accents, chinese=chinese
    )
    words = _word_counts(_count(sentences, progress), rules)
    if not words:
        raise _no_text()
    characters = _alphabet(words, character_coverage)
    kept = set(characters)
    usable = {word: n for word, n in words.items() if kept.issuperset(word)}
    inner = {c for word in usable for c in word[1:]}
    pieces = [*vars(BERT).values(), *characters, *(f"##{c}" for c in characters if c in inner)]
    if len(pieces) > vocab_size:
        raise VocabularyTooSmall(vocab_size, len(pieces))
    pieces += _longer_tokens(usable, pieces, vocab_size, min_frequency)
    if len(pieces) < vocab_size:
        raise VocabularyTooLarge(vocab_size, len(pieces))
    tokenizer = WordPieceTokenizer(pieces, lower=lower, strip_accents=strip_accents, chinese=chinese)
    tokenizer.save(folder)
    return tokenizer


class _Feed:
    """An iterator that records whether it yielded anything and which error it raised; the library reports
    neither."""

    def __init__(self, sentences: Iterator[str]) -> None:
        self._sentences, self.started = sentences, False
        self.error: BaseException | None = None

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        try:
            sentence = next(self._sentences)
        except StopIteration:
            raise
        except BaseException as error:
            self.error = error
            raise
        self.started = True
        return sentence


def _count(sentences: Iterable[str], progress: Progress | None) -> Iterator[str]:
    number = 0
    for number, sentence in enumerate(sentences, start=1):
        yield sentence
        if progress and number % REPORT_EVERY == 0:
            progress(number)
    if progress and number % REPORT_EVERY:
        progress(number)


def _clean(sentences: Iterable[str], cleaning: Cleaning) -> Iterator[str]:
    """Cleaned sentences, long ones split at spaces, which changes nothing, since SentencePiece counts
    words."""
    for sentence in sentences:
        rest = cleaning(sentence).strip().replace("\0", " ")
        while len(rest) * 4 > MAX_SENTENCE_BYTES and len(rest.encode("utf-8")) > MAX_SENTENCE_BYTES:
            most = MAX_SENTENCE_BYTES // 4
            cut = rest.rfind(" ", 1, most)
            cut = cut if cut > 0 else most
            yield rest[:cut]
            rest = rest[cut:].strip()
        if rest:
            yield rest


def _word_counts(sentences: Iterable[str], rules: WordPieceTokenizer) -> Counter[str]:
    """Counts of words after BERT's cleaning and splitting."""
    raw: Counter[str] = Counter()
    for sentence in sentences:
        raw.update(rules.parts(sentence))
        if len(raw) > MAX_WORDS:
            raw = Counter({part: n for part, n in raw.items() if n > 1})
            if len(raw) > MAX_WORDS // 2:
                raw = Counter(dict(raw.most_common(MAX_WORDS // 2)))
    words: Counter[str] = Counter()
    for part, n in raw.items():
        for word in rules.words(well_formed(part)):
            words[word] += n
    return words


def _alphabet(words: Counter[str], coverage: float) -> list[str]:
    """The most frequent characters that cover the share `coverage` of the text, by frequency, then code
    point."""
    counts: Counter[str] = Counter()
    for word, n in words.items():
        for character in word:
            counts[character] += n
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    enough, covered, chosen = coverage * counts.total(), 0, []
    for character, n in order:
        if covered >= enough:
            break
        chosen.append(character)
        covered += n
    return chosen


def _longer_tokens(
    words: dict[str, int], pieces: list[str], vocab_size: int, min_frequency: int
) -> list[str]:
    """Tokens of two and more characters, by the WordPiece trainer of `tokenizers`.

    The trainer numbers `##` characters in the order of a hash table and breaks ties by these numbers, so two
    runs differ. Passed as special tokens, the characters have fixed numbers.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    order = sorted((w for w in words if len(w) > 1), key=lambda w: (-words[w], w))
    if not order:
        return []
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=pieces,
        initial_alphabet=[],
        show_progress=False,
        continuing_subword_prefix="##",
    )
    backend = Tokenizer(models.WordPiece(unk_token=BERT.unk))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    scale = max(1.0, sum(words[w] for w in order) / MAX_TRAINER_WORDS)
    backend.train_from_iterator(_repeated(order, words, scale), trainer)
    known = set(pieces)
    found = sorted(backend.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    return [piece for piece, _ in found if piece not in known]


def _repeated(order: list[str], words: dict[str, int], scale: float) -> Iterator[str]:
    """Each word repeated by its count divided by `scale`, since the trainer takes text, not counts."""
    for word in order:
        times = round(words[word] / scale)
        while times > 0:
            yield " ".join([word] * min(times, 1000))
            times -= 1000


def _no_text() -> TokenizerError:
    return TokenizerError(
        "there is no text to make a vocabulary from",
        remedy="Check the paths and the format of the text files",
    )


def _too_large_or_small(error: Exception, vocab_size: int) -> TokenizerError:
    message = " ".join(str(error).split())
    if largest := re.search(r"value <= (\d+)", message):
        return VocabularyTooLarge(vocab_size, int(largest[1]))
    if smallest := re.search(r"\d+ vs (\d+)", message):
        return VocabularyTooSmall(vocab_size, int(smallest[1]))
    return TokenizerError(
        f"SentencePiece cannot train a vocabulary of {vocab_size:,} tokens from this text ({message[-200:]})",
        remedy="Give more text, or change vocab_size (--vocab-size)",
    )
