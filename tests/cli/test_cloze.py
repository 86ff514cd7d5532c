"""`albertine cloze`: training on its output, and errors of wrong arguments."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from albertine.interop.huggingface.folders import save_model
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.load import load_tokenizer
from tests.cli.conftest import Command
from tests.toy import demo_text, toy_vocabulary

TEXT = Path(__file__).parents[2] / "data" / "demo" / "english.tar.xz"


def contexts(file: Path) -> list[str]:
    tree = json.loads(file.read_text(encoding="utf-8"))
    return [p["context"] for article in tree["data"] for p in article["paragraphs"]]


def test_what_is_written_is_learned_from(albertine: Command, tmp_path: Path) -> None:
    """Catches: a passage in both files; an empty dev file; what was there before left beside the new."""
    output = tmp_path / "my questions"
    albertine("cloze", str(TEXT), "-o", str(output), "--questions", "40", "--seed", "2")
    first = contexts(output / "train.json")
    done = albertine("cloze", str(TEXT), "-o", str(output), "--questions", "300", "--json")
    printed = json.loads(done.out)
    train, dev = (contexts(output / f"{name}.json") for name in ("train", "dev"))
    assert printed["language"] == "en"
    assert (printed["train_passages"], printed["dev_passages"]) == (len(train), len(dev))
    assert printed["train_questions"] + printed["dev_questions"] == 300
    assert len(train) > 30 * len(dev) > 0 and not set(train) & set(dev) and train[0] != first[0]
    assert sorted(path.name for path in output.iterdir()) == ["dev.json", "train.json"]

    _, vocabulary = toy_vocabulary(tmp_path, 60_000)
    tokenizer = load_tokenizer(vocabulary)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=128,
        plan=SharingPlan.shared(2),
    )
    save_model(Model(config, {"mlm"}), tokenizer, tmp_path / "model")
    recipe = Path(__file__).parents[2] / "recipes" / "finetune" / "cloze.yaml"
    words = [f"encoder.folder={tmp_path / 'model'}", f"output={tmp_path / 'runs'}", "training.steps=2"]
    words += [f"task.train={output / 'train.json'}", f"task.dev={output / 'dev.json'}"]
    albertine("finetune", "--config", str(recipe), *words, "training.batch_size=4", "watching.evaluations=1")
    scores = json.loads((tmp_path / "runs" / "cloze" / "scores.json").read_text(encoding="utf-8"))
    assert "squad_f1" in json.dumps(scores)


def test_half_a_character_is_written_as_a_sign(albertine: Command, tmp_path: Path) -> None:
    """And answers are at their stated positions."""
    year = "The \ud800 harbour of Lisbon was built in 1755 by Maria Silva and two hundred men of the town."
    texts = [
        {"text": " ".join(year.replace("1755", str(1700 + 7 * i + j)) for j in range(9))} for i in range(9)
    ]
    lines = tmp_path / "lines.jsonl"
    lines.write_text("\n".join(map(json.dumps, texts)), encoding="utf-8")
    assert albertine("cloze", str(lines), "-o", str(tmp_path / "out"), "--language", "en").code == 0
    tree = json.loads((tmp_path / "out" / "train.json").read_text(encoding="utf-8"))
    passages = [passage for article in tree["data"] for passage in article["paragraphs"]]
    assert passages and all("The \ufffd harbour" in passage["context"] for passage in passages)
    for passage in passages:
        for answer in (one for question in passage["qas"] for one in question["answers"]):
            begin = answer["answer_start"]
            assert passage["context"][begin : begin + len(answer["text"])] == answer["text"]


def test_a_document_that_occurs_again_gives_no_questions_again(albertine: Command, tmp_path: Path) -> None:
    """Catches: a dev file of passages that are in the train file too."""
    tree = demo_text("en", tmp_path / "text" / "once", 60_000)
    once = json.loads(albertine("cloze", str(tree), "-o", str(tmp_path / "a"), "--json").out)
    assert once["duplicates_dropped"] == 0
    shutil.copytree(tree, tmp_path / "text" / "twice")
    twice = json.loads(albertine("cloze", str(tmp_path / "text"), "-o", str(tmp_path / "b"), "--json").out)
    assert twice == once | {"duplicates_dropped": len(list(tree.rglob("*.txt")))}
    assert (tmp_path / "a" / "dev.json").read_bytes() == (tmp_path / "b" / "dev.json").read_bytes()


def test_text_that_gives_no_questions_is_refused(albertine: Command, tmp_path: Path) -> None:
    small = tmp_path / "small.txt"
    small.write_text("Too short.\n", encoding="utf-8")
    refused = albertine("cloze", str(small), "-o", str(tmp_path / "out"))
    assert refused.code == 2 and "no two passages" in refused.err and not (tmp_path / "out").exists()
    for more in ((), ("--language", "en")):  # then nothing is read before the folder is made
        missing = albertine("cloze", str(tmp_path / "none"), "-o", str(tmp_path / "out"), *more)
        assert missing.code == 2 and "none" in missing.err and not (tmp_path / "out").exists()
    (tmp_path / "there").mkdir()
    assert albertine("cloze", str(small), "-o", str(tmp_path / "there")).code == 2
    assert (tmp_path / "there").is_dir()
