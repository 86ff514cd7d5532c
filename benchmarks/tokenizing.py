"""How the time of tokenising grows with the length of a word: texts of 10,000 to 1,000,000 characters without
a blank, of several kinds, for each kind of tokenizer.

python -m benchmarks.tokenizing ../shared/data/tokenizers/*
python -m benchmarks.tokenizing ../shared/data/tokenizers/* --save

Printed are seconds and the ratio of each to the length before it, which is about 10 where time is linear.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceTrainer

from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from benchmarks.keep import keep

LENGTHS = (10_000, 100_000, 1_000_000)
LETTERS = {
    "one letter": "x",
    "letters": "abcdefghijklmnopqrstuvwxyz",
    "punctuation": "!-,.'",
    "combining marks": "\u0301\u0323\u0316\u0f73",
    "without width": "\u200b\u200d",
    "Chinese": "北京是中国的首都",
    "numbers": "1,0",
}
WAYS = ("encode", "encode_flat", "encode_spans", "head", "tail")


def trained(model_type: str, **settings: Any) -> Tokenizer:
    """A small SentencePiece model of another kind."""
    draw, buffer = random.Random(0), io.BytesIO()
    lines = ("".join(draw.choices("abcdefgh ", k=40)) for _ in range(300))
    SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=buffer,
        model_type=model_type,
        vocab_size=60,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
        **settings,
    )
    return SentencePieceTokenizer(buffer.getvalue())


def with_added(tokenizer: Tokenizer) -> Tokenizer:
    """A tokenizer with a piece that is kept whole."""
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        added = {"[E1]": tokenizer.vocab_size}
        (Path(folder) / "added_tokens.json").write_text(json.dumps(added))
        return load_tokenizer(folder)


def tokenizers(folders: list[Path]) -> Iterator[tuple[str, Tokenizer]]:
    for folder in folders:
        tokenizer = load_tokenizer(folder)
        yield folder.name, tokenizer
        yield f"{folder.name} with an added piece", with_added(tokenizer)
    yield "SentencePiece BPE", trained("bpe")
    yield "SentencePiece across blanks", trained("unigram", split_by_whitespace=False)


def way(tokenizer: Tokenizer, name: str) -> Callable[[str], object]:
    if name == "encode_flat":
        return lambda text: tokenizer.encode_flat([text])
    if name in ("head", "tail"):
        return lambda text: getattr(tokenizer, name)(text, 510)
    found: Callable[[str], object] = getattr(tokenizer, name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, help="tokenizers")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, help="characters")
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    rows = []
    for name, tokenizer in tokenizers(options.folders):
        for kind, letters in LETTERS.items():
            text = "a" + "".join(random.Random(1).choices(letters, k=max(options.lengths)))
            for ways in WAYS:
                encode = way(tokenizer, ways)
                encode(text[:1000])
                seconds = []
                for length in options.lengths:
                    began = time.perf_counter()
                    encode(text[:length])
                    seconds.append(time.perf_counter() - began)
                ratios = [b / a for a, b in pairwise(seconds)]
                rows.append(
                    {"tokenizer": name, "text": kind, "way": ways, "seconds": seconds, "ratios": ratios}
                )
                shown = " ".join(f"{s:9.4f}" for s in seconds), " ".join(f"{r:6.1f}" for r in ratios)
                print(f"{name:45} {kind:16} {ways:13} {shown[0]} s  x {shown[1]}", flush=True)
    if options.save:
        keep("tokenizing", {"lengths": list(options.lengths), "rows": rows})


if __name__ == "__main__":
    main()
