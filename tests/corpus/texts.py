"""Small texts and a tokenizer for them, made on the spot."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np

from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer

LINE = "the old man went home and saw a bright river under tall trees while birds sang of spring rain"
WORDS = LINE.split()


def letter_tokenizer(folder: Path, *, without: str = "") -> Tokenizer:
    """WordPiece of single letters and the short ones of WORDS; letters in `without` are unknown to it."""
    letters = [c for c in string.ascii_lowercase + ".," if c not in without]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{c}" for c in letters)]
    folder.mkdir(parents=True, exist_ok=True)
    kept = [w for w in WORDS if 1 < len(w) < 5 and not set(w) & set(without)]
    (folder / "vocab.txt").write_text("\n".join([*pieces, *kept]) + "\n", encoding="utf-8")
    return load_tokenizer(folder)


def document(seed: int, sentences: int) -> list[str]:
    """Sentences of 4 to 12 words."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(sentences):
        words = rng.choice(WORDS, int(rng.integers(4, 13))).tolist()
        found.append(" ".join(words).capitalize() + ".")
    return found


def write_lines(path: Path, documents: list[list[str]]) -> Path:
    """One sentence a line, a blank line between documents."""
    path.write_text("\n\n".join("\n".join(d) for d in documents) + "\n", encoding="utf-8")
    return path


def library(folder: Path, documents: int = 60, seed: int = 0) -> Path:
    """A text file of `documents` documents of 8 to 25 sentences."""
    sizes = np.random.default_rng(seed).integers(8, 26, documents).tolist()
    folder.mkdir(parents=True, exist_ok=True)
    return write_lines(folder / "text.txt", [document(1000 * seed + i, n) for i, n in enumerate(sizes)])


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def write_files(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """Put files into a folder, which is made where there is none; gives `files`."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return files
