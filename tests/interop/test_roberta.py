"""RoBERTa: read as transformers computes it, saved as a BERT that computes the same, tuned and used for
predictions."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import ByteLevelBPETokenizer

import albertine
from albertine import Predictor
from albertine.core.settings import resolve
from albertine.errors import ModelError, SettingsError, TokenizerError
from albertine.inference.windows import PassageTokens, WindowSettings, rows_of
from albertine.tasks.finetune import finetune
from albertine.tasks.settings import FinetuneSettings
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter

TEXTS = ["the old man", "it was a  héllo 北京 , who?", " x\ty\nnever 😀", "", "A house — good!"]
WORDS = "the old man said that a house was good and never bad , who where ? in it"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SIZES: dict[str, Any] = {
    **{"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
    **{"max_position_embeddings": 66, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "initializer_range": 0.3},
}


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs of bytes")
    made = ByteLevelBPETokenizer()
    made.train_from_iterator([WORDS] * 20, vocab_size=340, special_tokens=SPECIAL)
    made.save_model(str(folder))
    return folder


def saved(vocabulary: Path, folder: Path, kind: str = "MaskedLM", **more: Any) -> Any:
    torch.manual_seed(1)
    tokenizer = transformers.RobertaTokenizer.from_pretrained(vocabulary)
    config = transformers.RobertaConfig(vocab_size=len(tokenizer), **{**SIZES, **more})
    model = getattr(transformers, f"RobertaFor{kind}" if kind else "RobertaModel")(config).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def far(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> float:
    return float((a - b)[mask.bool()].abs().max())


@pytest.mark.parametrize("kind", ["MaskedLM", ""])
@pytest.mark.parametrize("pad", [1, 0])
def test_states_of_padded_batches_are_those_of_transformers(
    vocabulary: Path, tmp_path: Path, kind: str, pad: int
) -> None:
    """Catches: positions that begin with the first row of the table."""
    theirs = saved(vocabulary, tmp_path / "m", kind, pad_token_id=pad)
    ours = albertine.load(tmp_path / "m")
    ids = torch.randint(5, 300, (3, 20))
    mask = (torch.arange(20) < torch.tensor([[20], [7], [1]])).long()
    ids = ids.where(mask.bool(), pad)
    base = theirs.roberta if kind else theirs
    with torch.no_grad():
        wanted, found = base(ids, mask), ours(ids, attention_mask=mask)
    assert far(wanted.last_hidden_state, found.last_hidden_state, mask) <= 1e-5
    if not kind:
        assert float((wanted.pooler_output - found.pooler_output).abs().max()) <= 1e-5
    assert ours.config.max_position_embeddings == 66 - pad - 1


def test_ids_are_those_of_transformers(vocabulary: Path, tmp_path: Path) -> None:
    saved(vocabulary, tmp_path / "m")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    for folder in (vocabulary, tmp_path / "m"):
        ours = load_tokenizer(folder)
        for text in TEXTS:
            assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids
            spans = ours.encode_spans(text)
            assert spans.ids == ours.encode(text)
            assert all(0 <= a <= b <= len(text) for a, b in zip(spans.starts, spans.ends, strict=True))
        assert ours.encode_batch(TEXTS) == [ours.encode(text) for text in TEXTS]
        flat, counts = ours.encode_flat(TEXTS)
        assert flat.tolist() == [i for text in TEXTS for i in ours.encode(text)] and counts.sum() == len(flat)
        spans = ours.encode_spans("the old man")
        assert [("the old man")[a:b] for a, b in zip(spans.starts, spans.ends, strict=True)] == WORDS.split()[
            :3
        ]
        pair = theirs("the old man", "it was")
        assert ours("the old man", "it was")["input_ids"] == pair.input_ids
        assert set(ours("the old man", "it was")["token_type_ids"]) == {0}
        for text in TEXTS:
            assert ours.decode(ours.encode(text)) == text.removeprefix(" ")
    assert load_tokenizer(tmp_path / "m")("the <mask> man")["input_ids"] == theirs("the <mask> man").input_ids
    cut = load_tokenizer(vocabulary)("the old man", "it was", max_length=6)["input_ids"]
    assert len(cut) == 6 and cut.count(2) == 3


def test_spaces_before_a_mask_belong_to_it_with_lstrip(vocabulary: Path, tmp_path: Path) -> None:
    """As in the released models."""
    saved(vocabulary, tmp_path / "m")
    tree = json.loads((tmp_path / "m" / "tokenizer.json").read_text())
    next(entry for entry in tree["added_tokens"] if entry["content"] == "<mask>")["lstrip"] = True
    (tmp_path / "m" / "tokenizer.json").write_text(json.dumps(tree))
    ours = load_tokenizer(tmp_path / "m")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "m" / "tokenizer.json"))
    for text in ("the old <mask> man", "<mask> was  <mask>", "a<mask>b <s> c"):
        assert ours(text)["input_ids"] == theirs(text).input_ids
        spans = ours.encode_spans_with_special_tokens(text)
        assert spans.ids == ours.encode_with_special_tokens(text)
        at = spans.ids.index(ours.mask_id)
        assert text[spans.starts[at] : spans.ends[at]] == "<mask>"


def test_a_saved_folder_loads_in_transformers_and_computes_the_same(vocabulary: Path, tmp_path: Path) -> None:
    theirs = saved(vocabulary, tmp_path / "m")
    albertine.save(albertine.load(tmp_path / "m"), load_tokenizer(tmp_path / "m"), tmp_path / "again")
    again, loading_info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert not any(loading_info.values())
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    before = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    batch = before(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
    assert tokenizer(TEXTS, TEXTS[::-1], padding=True)["input_ids"] == batch.input_ids.tolist()
    with torch.no_grad():
        assert far(theirs(**batch).logits, again.eval()(**batch).logits, batch.attention_mask) <= 1e-5
    assert load_tokenizer(tmp_path / "again").fingerprint == load_tokenizer(tmp_path / "m").fingerprint


def test_words_under_a_mask_are_those_of_transformers(vocabulary: Path, tmp_path: Path) -> None:
    theirs = saved(vocabulary, tmp_path / "m")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    batch = tokenizer("the old <mask> man", return_tensors="pt")
    with torch.no_grad():
        logits = theirs(**batch).logits[0, batch.input_ids[0].tolist().index(4)]
    (guesses,) = Predictor(tmp_path / "m", precision="float32").fill_mask("the old <mask> man", top_k=3)
    wanted = logits.index_fill(0, torch.tensor([0, 1, 2, 3, 4]), -torch.inf)
    assert [guess.token_id for guess in guesses] == wanted.topk(3).indices.tolist()


def test_a_classifier_of_transformers_answers_the_same(vocabulary: Path, tmp_path: Path) -> None:
    theirs = saved(vocabulary, tmp_path / "m", "SequenceClassification", id2label={0: "no", 1: "yes"})
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    pairs = [("the old man", "it was good"), ("who", "never")]
    batch = tokenizer([a for a, _ in pairs], [b for _, b in pairs], padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = theirs(**batch).logits.softmax(-1)
    found = Predictor(tmp_path / "m", precision="float32").classify(pairs)
    assert [row["yes"] for row in found] == pytest.approx(wanted[:, 1].tolist(), abs=1e-5)


def test_windows_have_two_separators_and_one_segment(vocabulary: Path) -> None:
    tokenizer = load_tokenizer(vocabulary)
    question, spans = tokenizer.encode("who was it"), tokenizer.encode_spans(WORDS)
    reading = WindowSettings(max_length=20, stride=6)
    windows, rows = rows_of(tokenizer, question, PassageTokens.of(tokenizer, WORDS), reading)
    assert len(rows) > 1
    for window, (ids, types) in zip(windows, rows, strict=True):
        passage = spans.ids[window.first : window.first + window.size]
        assert ids.tolist() == tokenizer.layout(question, passage)[0] and not types.any()
        assert ids[window.offset : window.offset + window.size].tolist() == passage
        assert len(ids) <= 20


def tuned(folder: Path, task: dict[str, Any]) -> Any:
    tree = {
        "name": "t",
        "output": folder,
        "task": {**task, "max_length": 32},
        "encoder": {"folder": folder / "m"},
        "training": {"steps": 2, "threads": 1, "precision": "float32"},
        "watching": {"report": False, "tensorboard": False, "evaluations": 1},
    }
    return finetune(resolve(FinetuneSettings, tree), reporter=Reporter(quiet=True))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("task", "more"),
    [("text=a label=l", {}), ("text=a pair=b label=l", {}), ("text=a pair=b label=l", {"pooling": "depths"})],
)
def test_it_is_tuned_and_predicts(vocabulary: Path, tmp_path: Path, task: str, more: dict[str, Any]) -> None:
    saved(vocabulary, tmp_path / "m")
    rows = [{"a": f"the old man {n}", "b": "it was", "l": ("x", "y")[n % 2]} for n in range(12)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = {**dict(x.split("=") for x in task.split()), "train": file, "dev": file, **more}
    result = tuned(tmp_path, chosen)
    texts_of_rows = [(row["a"], row["b"]) if "pair" in task else row["a"] for row in rows]
    assert len(Predictor(result.model).classify(texts_of_rows)) == 12
    if not more:
        auto = transformers.AutoModelForSequenceClassification
        theirs, loading_info = auto.from_pretrained(result.model, output_loading_info=True)
        assert not any(loading_info.values())
        tokenizer = transformers.AutoTokenizer.from_pretrained(result.model)
        texts = [list(x) for x in zip(*texts_of_rows, strict=True)] if "pair" in task else [texts_of_rows]
        with torch.no_grad():
            logits = theirs.eval()(**tokenizer(*texts, padding=True, return_tensors="pt")).logits
        names = theirs.config.id2label
        found = Predictor(result.model, precision="float32").classify(texts_of_rows)
        wanted = [float(row.softmax(-1)[1]) for row in logits]
        assert [row[names[1]] for row in found] == pytest.approx(wanted, abs=1e-5)
        uneven = [[*column[:-1], column[-1] + " that a house was good"] for column in texts]
        batches = (
            tokenizer(*uneven, padding=True, return_tensors="pt", padding_side=side)
            for side in ("right", "left")
        )
        right, left = (albertine.load_task(result.model)(**batch).logits for batch in batches)
        assert torch.allclose(left, right, atol=1e-5)


def test_what_is_not_read_is_reported(vocabulary: Path, tmp_path: Path) -> None:
    saved(vocabulary, tmp_path / "m")
    config, tokens = tmp_path / "m" / "config.json", tmp_path / "m" / "tokenizer.json"
    tree = json.loads(config.read_text())
    for change in ({"hidden_act": "relu"}, {"pad_token_id": "x"}, {"max_position_embeddings": 2}):
        config.write_text(json.dumps(tree | change))
        with pytest.raises(ModelError, match="cannot be used"):
            albertine.load(tmp_path / "m")
    config.write_text(json.dumps(tree))
    spelled = json.loads(tokens.read_text())
    for change in ({"normalizer": {"type": "Lowercase"}}, {"model": {**spelled["model"], "dropout": 0.1}}):
        tokens.write_text(json.dumps(spelled | change))
        with pytest.raises(TokenizerError, match="in another way than RoBERTa"):
            load_tokenizer(tmp_path / "m")
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b,l\nx,y,p\nz,w,q\n" * 4)
    tokens.write_text(json.dumps(spelled))
    with pytest.raises(SettingsError, match="one segment for both"):
        tuned(
            tmp_path,
            {"text": "a", "pair": "b", "label": "l", "train": rows, "dev": rows, "pooling": "compared"},
        )


def test_xlm_roberta_is_read_and_its_tokenizer_named(vocabulary: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    theirs = transformers.XLMRobertaModel(transformers.XLMRobertaConfig(vocab_size=300, **SIZES)).eval()
    theirs.save_pretrained(tmp_path / "m")
    ids = torch.randint(5, 300, (2, 9))
    with torch.no_grad():
        found = albertine.load(tmp_path / "m")(ids).last_hidden_state
        assert float((theirs(ids).last_hidden_state - found).abs().max()) <= 1e-5
    shutil.copy(vocabulary / "vocab.json", tmp_path / "m")
    (tmp_path / "m" / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    with pytest.raises(TokenizerError):
        load_tokenizer(tmp_path / "m")


def test_the_ends_of_a_long_text_have_its_ids(vocabulary: Path) -> None:
    """Catches: a text that is cut inside of a word or of several spaces, before it is encoded."""
    tokenizer = load_tokenizer(vocabulary)
    text = "  ".join([WORDS, "北京 , who?", " x\ty 's never"] * 300)
    ids = tokenizer.encode(text)
    for count in (1, 7, 50, 400):
        head, tail = tokenizer.head(text, count), tokenizer.tail(text, count)
        assert len(head) < len(text) and len(tail) < len(text)
        assert (
            tokenizer.encode(head)[:count] == ids[:count] and tokenizer.encode(tail)[-count:] == ids[-count:]
        )
    long = "x" * 300_000
    assert tokenizer.encode_spans(long).ids == tokenizer.encode(long)
