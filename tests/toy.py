"""Small inputs and small runs for tests that go the whole way."""

from __future__ import annotations

import tarfile
from pathlib import Path

from albertine.corpus.prepare import write_corpus
from albertine.text.documents import read_documents
from albertine.text.sentences import document_sentences
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import train_sentencepiece

DEMO = Path(__file__).resolve().parents[1] / "data" / "demo"
ARCHIVES = {"en": DEMO / "english.tar.xz", "zh": DEMO / "chinese.tar.xz"}

MODEL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
}
# Any recipe with these is two steps of a model that takes no time.
RUN = [
    *(f"model.change.{key}={value}" for key, value in MODEL.items()),
    "objective.max_length=32",
    "training.minutes=null",
    "training.steps=2",
    "training.batch_size=4",
    "training.workers=0",
    "watching.evaluate_sequences=8",
    "watching.tensorboard=false",
]


def demo_text(language: str, folder: Path, size: int) -> Path:
    """The first files of a demo archive, `size` bytes or a little more, unpacked into `folder`."""
    taken = 0
    with tarfile.open(ARCHIVES[language]) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None or taken >= size:
                continue
            data = content.read()
            taken += len(data)
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return folder


def toy_vocabulary(folder: Path, size: int, *, cls_last: bool = False) -> tuple[Path, Path]:
    """About `size` bytes of English novels, and a vocabulary of 500 tokens trained on them."""
    text, vocabulary = demo_text("en", folder / "text", size), folder / "vocabulary"
    sentences = (s for d in read_documents([text]) for s in document_sentences(d, "en"))
    train_sentencepiece(sentences, vocabulary, vocab_size=500, cls_last=cls_last)
    return text, vocabulary


def toy_corpus(folder: Path, *, cls_last: bool = False) -> Path:
    """About 150 kB of novels, cut at chapters, a third of them held out."""
    text, vocabulary = toy_vocabulary(folder, 150_000, cls_last=cls_last)
    write_corpus([text], folder / "corpus", load_tokenizer(vocabulary), "en", workers=1, held_out=0.3)
    return folder / "corpus"
