"""Every family of tasks on an XLNet, whose [CLS] is the last token of a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.errors import ModelError
from albertine.inference.whitening import fit_whitening
from albertine.inference.windows import PassageTokens, WindowSettings, rows_of
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.interop.sentence_transformers import sentence_files
from albertine.model.model import Model
from albertine.model.task_model import Classifier, Embedder
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import EncoderChanges, ModelChoice
from albertine.tasks.answer import Question, encode, windows_to_learn
from albertine.tasks.examples import Example
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.initial_model import rates
from albertine.tasks.predictor import Predictor
from albertine.tasks.relation_rows import encode as encode_relations
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.tag import encode as encode_tags
from albertine.text.documents import read_documents
from albertine.text.sentences import document_sentences
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import train_sentencepiece
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune
from tests.tasks.test_answer import task as answers
from tests.tasks.test_crf import entities
from tests.tasks.test_multiple_choice import questions
from tests.tasks.test_relate import task as relations
from tests.toy import MODEL, demo_text


@pytest.fixture(scope="session")
def last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two depths of 32 of XLNet, and its kind of vocabulary."""
    folder = tmp_path_factory.mktemp("cls last")
    text = demo_text("en", folder / "text", 100_000)
    sentences = (s for d in read_documents([text]) for s in document_sentences(d, "en"))
    tokenizer = train_sentencepiece(sentences, folder / "vocabulary", 500, cls_last=True)
    changes = EncoderChanges(**MODEL, initializer_range=0.1)  # type: ignore[arg-type]
    choice = ModelChoice(preset="xlnet-base", change=changes)
    config = encoder_config(choice, tokenizer.vocab_size, 64, cls_last=True)
    save_model(Model(config, {"lm"}, seed=3), tokenizer, folder / "a model")
    return folder / "a model"


@pytest.fixture
def tokenizer(last: Path) -> Tokenizer:
    return load_tokenizer(last)


@pytest.fixture
def tuned(tune: Tune, last: Path) -> Callable[..., FinetuneResult]:
    def make(**changes: Any) -> FinetuneResult:
        settings: FinetuneSettings = tune(encoder={"folder": last}, **changes)
        return finetune(settings, reporter=Reporter(quiet=True))

    return make


def pieces(tokenizer: Tokenizer, ids: Any) -> list[str]:
    return [tokenizer.id_to_piece(int(i)) for i in ids]


def test_the_passage_stands_first_and_cls_means_that_it_has_no_answer(tokenizer: Tokenizer) -> None:
    text = "the old man sat in the house and the night was long"
    place = text.index("house")
    two = [Question("1", "where", text, (("house", place),), "x"), Question("2", "who", text, (), "x")]
    reading = WindowSettings(max_length=16, stride=3, question=5)
    data = encode(two, tokenizer, reading)
    assert data.targets is not None
    windows, rows = rows_of(tokenizer, tokenizer.encode("where"), PassageTokens.of(tokenizer, text), reading)
    assert len(windows) > 2 and {w.offset for w in windows} == {0}
    edge = [tokenizer.sep_id, *tokenizer.encode("where"), tokenizer.sep_id, tokenizer.cls_id]
    for window, (ids, types) in zip(windows, rows, strict=True):
        whole = tokenizer.encode(text)
        assert ids.tolist() == [*whole[window.first : window.first + window.size], *edge]
        assert types.tolist() == [0] * (window.size + 1) + [1] * (len(edge) - 2) + [2]
    house = tokenizer.encode("house")
    first = sum(int(n) for n in data.starts[:2])
    found = 0
    for row, places in enumerate(np.concatenate(data.targets).tolist()):
        ids = data.ids[row].tolist()
        if places == [len(ids) - 1] * 2:
            assert ids[places[0]] == tokenizer.cls_id
        else:
            found += 1
            assert row < first and ids[places[0] : places[1] + 1] == house
    assert 0 < found < first
    learned = windows_to_learn(data, 0.0)
    assert len(learned.ids) == found + (len(data.ids) - first)  # a question without an answer stays as it is


def test_an_answer_at_the_very_beginning_is_an_answer(tokenizer: Tokenizer) -> None:
    data = encode(
        [Question("1", "who", "he was old", (("he", 0),), "x")], tokenizer, WindowSettings(max_length=16)
    )
    assert data.targets is not None and data.targets[0][0, 0] == 0
    assert len(windows_to_learn(data, 0.0).ids) == 1


def test_tags_and_names_stand_where_their_tokens_do(tokenizer: Tokenizer) -> None:
    text = "the house of the old man"
    thing = (text.index("house"), text.index("house") + 5)
    tags = encode_tags([Example("1", text, None, (("x", *thing),), "x")], tokenizer, 32, ["O", "B-x", "I-x"])
    assert tags.targets is not None
    marked = [i for i, tag in enumerate(tags.targets[0].tolist()) if tag > 0]
    assert [tags.ids[0][i] for i in marked] == tokenizer.encode("house")
    assert tags.targets[0][-2:].tolist() == [-100, -100] and tags.targets[0][0] == 0
    triple = ("house", "of", "the old man")
    examples = [Example("1", text, None, (triple,), "x"), Example("2", "he said", None, (), "x")]
    related = encode_relations(examples, tokenizer, 32, ["of"])
    assert related.targets is not None
    a, b, _, c, d = related.targets[0][0].tolist()
    ids = related.ids[0].tolist()
    assert (ids[a : b + 1], ids[c : d + 1]) == (tokenizer.encode("house"), tokenizer.encode("the old man"))
    subjects = related.batch([0, 1]).subjects.tolist()
    assert subjects[0] == [a, b]
    assert subjects[1] == [len(ids) + len(related.ids[1]) - 1] * 2  # of none the question is about [CLS]


def test_runs_of_one_text_and_of_pairs_learn(tuned: Callable[..., FinetuneResult]) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    result = tuned(task={"pair": "answer", "examples": 250})
    assert result.scores["accuracy"] > 0.9
    predictor = Predictor(result.folder / "best", precision="float32")
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()][:5]
    ours = predictor.classify([(line["text"], line["pair"]) for line in lines])
    assert [max(one, key=one.__getitem__) for one in ours] == [line["prediction"] for line in lines]
    assert predictor.embed(["he said", "the house"]).shape == (2, MODEL["hidden_size"])
    # transformers looks at the last column, so that padding must be on the left.
    theirs = AutoModelForSequenceClassification.from_pretrained(result.folder / "best").eval()
    rows = AutoTokenizer.from_pretrained(result.folder / "best")(
        [line["text"] for line in lines], [line["pair"] for line in lines], padding=True, return_tensors="pt"
    )
    with torch.no_grad():
        chances = theirs(**rows).logits.softmax(-1)
    for row, one in zip(chances, ours, strict=True):
        by_name = {theirs.config.id2label[i]: float(chance) for i, chance in enumerate(row)}
        assert by_name == pytest.approx(one, abs=1e-4)


def test_a_run_of_entities_learns(tuned: Callable[..., FinetuneResult], tmp_path: Path) -> None:
    files = {"train": entities(tmp_path / "a.jsonl", 300, 1), "dev": entities(tmp_path / "b.jsonl", 60, 2)}
    task = {**files, "label": "found", "text": "text", "kind": "entities", "crf": True}
    result = tuned(task=task, training={"epochs": 3, "crf_rate": 10})
    assert result.scores["entity_f1"] > 0.9
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    predictor = Predictor(result.folder / "best", precision="float32")
    assert [predictor.tag(x["text"]) for x in lines] == [
        [tuple(e[:3]) for e in x["prediction"]] for x in lines
    ]


@pytest.mark.matrix
def test_a_run_of_options_learns(tuned: Callable[..., FinetuneResult], tmp_path: Path) -> None:
    files = {"train": questions(tmp_path / "a.jsonl", 200, 1), "dev": questions(tmp_path / "b.jsonl", 60, 2)}
    task = {**files, "text": "text", "pair": "ask", "label": "right", "kind": "choice", "pooling": "cls"}
    assert tuned(task=task).scores["accuracy"] > 0.8


def test_a_run_of_answers_that_may_not_be_there_learns(
    tuned: Callable[..., FinetuneResult], tmp_path: Path
) -> None:
    from transformers import XLNetForQuestionAnswering

    result = tuned(task=answers(tmp_path, answer={"no_answer": True}), training={"epochs": 6})
    assert result.scores["squad2_best_f1"] > 0.8
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    predictor = Predictor(result.folder / "best", precision="float32")
    with_answer = next(line for line in lines if line["label"] and line["prediction"])
    pairs = [("what", "the old man and the time good house"), ("what", "the old man and the time house")]
    one, other = predictor.likely_spans(pairs)
    assert one.no_answer is not None and other.no_answer is not None and one.no_answer < other.no_answer
    assert with_answer["prediction"] in ("good", "never")
    theirs = XLNetForQuestionAnswering.from_pretrained(result.folder / "best").eval()
    passage, question = pairs[0][1], pairs[0][0]
    row = predictor.tokenizer(passage, question, return_tensors="pt")
    cls = torch.tensor([row["input_ids"].shape[1] - 1])
    p_mask = (row["token_type_ids"] == 1).float()
    p_mask[0, len(predictor.tokenizer.encode(passage))] = 1  # the separator behind the passage
    with torch.no_grad():
        out = theirs(**row, cls_index=cls, p_mask=p_mask)
        chance = out.start_top_log_probs[0, 0] * out.end_top_log_probs[0, 0]
    assert float(chance) > 0.2
    spans = PassageTokens.of(predictor.tokenizer, passage)
    first, end = int(out.start_top_index[0, 0]), int(out.end_top_index[0, 0])
    assert passage[spans.starts[first] : spans.ends[end]] == "good" == passage[slice(*next(iter(one.spans)))]
    assert run(["convert", str(result.folder / "best"), str(tmp_path / "converted")]) == 0
    again = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert again["architectures"] == ["XLNetForQuestionAnswering"] and again["start_n_top"] == 5
    _, loading_info = XLNetForQuestionAnswering.from_pretrained(
        tmp_path / "converted", output_loading_info=True
    )
    assert not loading_info["missing_keys"]


@pytest.mark.matrix
def test_a_run_of_relations_learns(tuned: Callable[..., FinetuneResult], tmp_path: Path) -> None:
    result = tuned(task=relations(tmp_path), training={"epochs": 9})
    assert result.scores["triple_f1"] > 0.5


def test_layer_wise_decay_reaches_every_part_of_a_layer(last: Path) -> None:
    """What its authors tune SQuAD with; relative positions, segments and their biases are of the layer."""
    model = Classifier(load_model(last), 2)
    rate, found = rates(model.base.config.plan, 0.75), dict[float, set[str]]()
    for name, _ in model.named_parameters():
        found.setdefault(rate(name), set()).add(name)
    heads = {"classifier.weight", "classifier.bias", "base.lm.query", "base.lm.bias"}
    assert heads <= found[1.0]
    assert found[0.75**2] == {"base.encoder.embeddings.word.weight"}
    layers = [{n.replace(f".{d}.", ".", 1) for n in found[0.75 ** (1 - d)] - heads} for d in (0, 1)]
    assert (
        layers[0] == layers[1]
        and {
            "base.encoder.attention.position.weight",
            "base.encoder.attention.segments",
            "base.encoder.attention.biases.segment",
            "base.encoder.feed_forward.output.bias",
        }
        <= layers[0]
    )


def test_a_tokenizer_that_puts_cls_first_is_refused(
    last: Path, pretrained: Path, tmp_path: Path, tune: Tune
) -> None:
    save_model(load_model(last), None, tmp_path / "mixed")
    load_tokenizer(pretrained).save(tmp_path / "mixed")
    with pytest.raises(ModelError, match=r"last token of a text.*puts \[CLS\] first.*--kind xlnet"):
        finetune(tune(encoder={"folder": tmp_path / "mixed"}), reporter=Reporter(quiet=True))
    save_model(load_model(pretrained), None, tmp_path / "other")
    load_tokenizer(last).save(tmp_path / "other")
    with pytest.raises(ModelError, match=r"first token of a text.*puts <cls> last"):
        Predictor(tmp_path / "other")


def test_sentence_transformers_takes_cls_where_it_stands(
    last: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    package = pytest.importorskip("sentence_transformers")
    model, texts = load_model(last), ["he said", "the house of the old man"]
    files = sentence_files(Embedder(model, "cls"))
    save_model(model, tokenizer, tmp_path / "e", extra_files=files)
    theirs = package.SentenceTransformer(str(tmp_path / "e"), device="cpu").encode(texts)
    ours = Predictor(tmp_path / "e", precision="float32").embed(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("flags", [{"task": "embed"}, {}], ids=["ours", "theirs"])
def test_cls_of_an_earlier_folder_is_the_last_token_and_of_others_the_first(
    last: Path, tokenizer: Tokenizer, tmp_path: Path, flags: dict[str, str]
) -> None:
    """Catches: the last token for the first; a folder of ours that is refused, or keeps `cls` in its
    configuration."""
    model, texts = load_model(last), ["he said", "the house of the old man"]
    files = sentence_files(Embedder(model, "cls"))
    save_model(model, tokenizer, tmp_path / "now", extra_files=files)
    name, before, now = "1_Pooling/config.json", "pooling_mode_cls_token", "pooling_mode_lasttoken"
    files[name] = json.dumps({**json.loads(files[name]), before: True, now: False}).encode()
    save_model(model, tokenizer, tmp_path / "then", extra_files=files, extra_config={"albertine": flags})
    if not flags:
        with pytest.raises(ModelError, match="pools by the first token of a text"):
            Predictor(tmp_path / "then", precision="float32").embed(texts)
        return
    assert run(["convert", str(tmp_path / "then"), str(tmp_path / "again")]) == 0
    config = json.loads((tmp_path / "again" / name).read_text())
    assert config[now] and not config[before]
    wanted, then, again = (
        Predictor(tmp_path / folder, precision="float32").embed(texts) for folder in ("now", "then", "again")
    )
    np.testing.assert_array_equal(then, wanted)
    np.testing.assert_array_equal(again, wanted)


def test_a_mask_is_filled_with_cls_in_its_own_segment(
    last: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = Model(load_model(last).config, {"mlm"}, seed=3).eval()
    with torch.no_grad():
        for block in model.encoder.attention:
            block.segments.mul_(30)  # type: ignore[union-attr,operator]
    save_model(model, tokenizer, tmp_path / "m")
    text = f"the old {tokenizer.special.mask} sat in the house"
    row = tokenizer(text)
    place = torch.tensor([row["input_ids"].index(tokenizer.mask_id)])
    with torch.inference_mode():
        packed = pack([row["input_ids"]], [row["token_type_ids"]])
        logits = model.pretraining_forward(packed, place)[0][0].clone()
        logits[sorted(tokenizer.special_ids)] = float("-inf")
    wanted = logits.softmax(0).topk(3).values.tolist()
    (found,) = Predictor(tmp_path / "m", precision="float32").fill_mask(text, top_k=3)
    assert [guess.probability for guess in found] == pytest.approx(wanted, rel=1e-4)


def test_a_whitening_is_of_texts_as_they_are_read(last: Path, tokenizer: Tokenizer) -> None:
    model = load_model(last).eval()
    with torch.no_grad():
        for block in model.encoder.attention:
            block.segments.mul_(30)  # type: ignore[union-attr,operator]
    texts = [f"the old man said {'good ' * (i % 9)}house {i}" for i in range(100)]
    laid_out = [tokenizer.layout(ids) for ids in tokenizer.encode_batch(texts)]
    with torch.no_grad():
        packed = pack([ids for ids, _ in laid_out], [types for _, types in laid_out])
        states = model.encoder(packed, depth=1).last_hidden
    means = torch.stack([x.mean(0) for x in states.split([len(ids) for ids, _ in laid_out])])
    torch.testing.assert_close(
        fit_whitening(model, tokenizer, texts, 1).mean, means.mean(0), atol=1e-5, rtol=0
    )
