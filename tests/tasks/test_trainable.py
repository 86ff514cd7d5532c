"""A tuned model with its head, called with padded batches and trained in a loop of one's own."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import albertine
from albertine.errors import InputError, ModelError
from albertine.inference.probabilities import softmax
from albertine.model.answerability_head import JointAnswer
from albertine.tasks.answer import Question
from albertine.tasks.embed import Likeness
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.multiple_choice import choices_of
from albertine.tasks.trainable import TrainableTask
from tests.inference.exports import FAMILIES, PASSAGES, TEXTS, TWO, tuned

TRAINABLE = ["single", "multi", "score", "cross-encoder", "compared", "tag", "crf", "answer", "answer or not"]
TRAINABLE += ["choose", "embed", "embed by depths", "embed whitened"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tuned")
    return {name: tuned(name, folder / name) for name in (*TRAINABLE, "relate", "fill-mask")}


def examples(name: str) -> list[Any]:
    """Questions of a family with their right answers."""
    if name == "choose":
        made = choices_of(
            [("the man _ good", ["was", "said", "never in a house"], ""), ("who", ["a", "in"], "")]
        )
        return [replace(one, label=label) for one, label in zip(made, (2, 1), strict=True)]
    if name.startswith("embed"):
        return [Likeness(str(i), t, "the house", i / 4, "") for i, t in enumerate(TEXTS)]
    if name.startswith("answer"):
        golds: list[tuple[tuple[str, int], ...]] = [(("old man", 4),), (("house", LONG_HOUSE),), ()]
        return [
            Question(str(i), q, p, gold, "")
            for i, ((q, p), gold) in enumerate(zip(PASSAGES, golds, strict=True))
        ]
    if name in ("cross-encoder", "compared"):
        labels: list[Any] = [0.5, 2.0, -1.0] if name == "cross-encoder" else ["a", "b", "b"]
        return [
            Example(str(i), a, b, gold, "") for i, ((a, b), gold) in enumerate(zip(TWO, labels, strict=True))
        ]
    golds_of: dict[str, list[Any]] = {
        "single": ["a", "c", "b", "a"],
        "multi": [frozenset("ab"), frozenset(), frozenset("c"), frozenset("a")],
        "score": [0.5, 2.0, -1.0, 3.0],
        "tag": [(("X", 4, 11),), (("Y", 2, 7),), (), (("X", 0, 3), ("Y", 8, 11))],
    }
    every = golds_of["tag" if name == "crf" else name]
    return [Example(str(i), t, None, gold, "") for i, (t, gold) in enumerate(zip(TEXTS, every, strict=True))]


LONG_HOUSE = PASSAGES[1][1].index("house")


def padded(data: Encoded, *, left: bool = False) -> dict[str, Tensor]:
    """All rows of some examples as a padded batch (rows, length), with some id in the padding."""
    longest = max(map(len, data.ids))
    table = {name: torch.full((len(data.ids), longest), 3) for name in ("input_ids", "token_type_ids")}
    table["attention_mask"] = torch.zeros(len(data.ids), longest, dtype=torch.int64)
    for i, (ids, types) in enumerate(zip(data.ids, data.types, strict=True)):
        where = slice(longest - len(ids), None) if left else slice(len(ids))
        for name, values in (
            ("input_ids", ids),
            ("token_type_ids", types),
            ("attention_mask", np.ones_like(ids)),
        ):
            table[name][i, where] = torch.from_numpy(np.asarray(values, dtype=np.int64))
    return table


def grouped(table: dict[str, Tensor], sizes: tuple[int, ...]) -> dict[str, Tensor]:
    """The rows of each example beside each other, (examples, most rows, length); rows of zeros where an
    example has fewer."""
    found = {}
    for name, rows in table.items():
        whole = rows.new_zeros(len(sizes), max(sizes), rows.shape[1])
        for i, part in enumerate(rows.split(list(sizes))):
            whole[i, : len(part)] = part
        found[name] = whole
    return found


def inputs(name: str, task: TrainableTask, folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], Encoded]:
    """A padded call for a family: inputs, labels, and the same as the family itself encodes it."""
    tokenizer, questions = albertine.load_tokenizer(folder), examples(name)
    data = task.family.encode(questions, tokenizer)
    assert data.targets is not None
    table, flat = padded(data), np.concatenate(data.targets)
    if name == "choose" or name.startswith("embed"):
        return grouped(table, data.sizes), {"labels": torch.from_numpy(flat)}, data
    if name.startswith("answer"):
        return table, {"start_positions": flat[:, 0], "end_positions": flat[:, 1]}, data
    if name in ("tag", "crf"):
        labels = torch.full(table["input_ids"].shape, -100)
        labels[table["attention_mask"] == 1] = torch.from_numpy(flat)
        return table, {"labels": labels}, data
    return table, {"labels": flat}, data


@pytest.mark.parametrize("name", TRAINABLE)
def test_loss_is_that_of_fine_tuning_and_reaches_every_weight(name: str, folders: dict[str, Path]) -> None:
    task = albertine.load_task(folders[name])
    table, labels, data = inputs(name, task, folders[name])
    found = task(**table, **labels)
    part = task.family.part(task.model, data.batch(range(len(data.examples))))
    assert found.loss is not None and found.loss.dim() == 0
    assert found.loss.item() == pytest.approx((part.loss_sum / part.count).item(), rel=1e-5)
    found.loss.backward()
    idle = {n for n, p in task.named_parameters() if p.grad is None and ".pooler" not in n and "lm" not in n}
    assert not idle or name == "compared"  # which reads the first depth alone
    before = task(**table, **labels).loss.item()
    with torch.no_grad():
        for p in task.parameters():
            if p.grad is not None:
                p -= 1e-3 * p.grad / (p.grad.norm() + 1e-6)
    assert task(**table, **labels).loss.item() < before


@pytest.mark.parametrize("name", TRAINABLE)
def test_numbers_are_those_of_the_predictor(name: str, folders: dict[str, Path]) -> None:
    task, predictor = (
        albertine.load_task(folders[name]),
        albertine.Predictor(folders[name], precision="float32"),
    )
    table, _, _ = inputs(name, task, folders[name])
    questions, close = examples(name), pytest.approx
    with torch.no_grad():
        found = task(**table)
    assert found.loss is None and not task.training
    if name in ("single", "multi", "score", "cross-encoder", "compared"):
        texts = [e.text if e.pair is None else (e.text, e.pair) for e in questions]
        theirs = [list(row.values()) for row in predictor.classify(texts, logits=True)]
        assert found.logits.reshape(len(questions), -1).tolist() == [close(row, abs=1e-4) for row in theirs]
    elif name == "choose":
        for e, row in zip(questions, found.logits.tolist(), strict=True):
            logits = predictor.choose(e.passage, e.options, logits=True)
            assert row == close([*logits, *[float("-inf")] * (3 - len(logits))], abs=1e-4)
            assert predictor.choose(e.passage, e.options) == close(softmax(np.array([logits]))[0].tolist())
    elif name in ("tag", "crf"):
        tags, outputs = task.tags(**table), predictor.outputs(questions)[0]
        real = table["attention_mask"] == 1
        assert tags[real].tolist() == (outputs if name == "crf" else outputs.argmax(-1)).tolist()
        assert found.logits[real].argmax(-1).tolist() == outputs.argmax(-1).tolist() or name == "crf"
        assert (tags[table["attention_mask"] == 0] == -100).all()
    elif name == "answer":
        assert torch.isneginf(found.logits[table["attention_mask"] == 0]).all()
        outputs = predictor.outputs(questions)[0]
        best = max(outputs[2].spans.items(), key=lambda item: item[1])[0]
        row = found.logits[-1].log_softmax(0)
        first = table["token_type_ids"][-1].tolist().index(1)
        last = int(table["attention_mask"][-1].sum()) - 1  # [SEP]
        places = [(s, e) for s in range(first, last) for e in range(s, last)]
        start, end = max(places, key=lambda at: float(row[at[0], 0] + row[at[1], 1]))
        assert PASSAGES[2][1][slice(*best)] == "man" and (start, end) == (4, 4)
    elif name == "answer or not":
        none = [one.no_answer for one in predictor.likely_spans(PASSAGES)]
        assert found.logits[[0, -1]].sigmoid().tolist() == close([none[0], none[-1]], abs=1e-4)
        assert (found.spans.starts <= found.spans.ends).any() and found.spans.scores.shape == (
            len(table["input_ids"]),
            25,
        )
    else:
        vectors = predictor.embed([e.text for e in questions], normalize=False)
        other = predictor.embed(["the house"], normalize=False)
        cosines = F.cosine_similarity(torch.from_numpy(vectors), torch.from_numpy(other))
        assert found.logits.tolist() == close(cosines.tolist(), abs=1e-4)
        alone = task(**{n: x[:, 0] for n, x in table.items()})
        assert alone.logits is None and torch.allclose(alone.vectors, found.vectors[:, 0], atol=1e-5)


@pytest.mark.parametrize("name", ["single", "tag", "crf", "answer", "answer or not"])
def test_padding_may_be_on_the_left(name: str, folders: dict[str, Path]) -> None:
    """Catches: columns of the batch as rows of the learned table of positions."""
    task = albertine.load_task(folders[name])
    assert task.base.encoder.embeddings.position.weight.std() > 0.1
    table, labels, data = inputs(name, task, folders[name])
    moved = padded(data, left=True)
    shift = table["input_ids"].shape[1] - table["attention_mask"].sum(1)
    if name.startswith("answer"):
        other: dict[str, Any] = {n: torch.from_numpy(x) + shift for n, x in labels.items()}
    elif name == "single":
        other = labels
    else:
        other = {
            "labels": torch.stack([x.roll(int(s)) for x, s in zip(labels["labels"], shift, strict=True)])
        }
    here, there = task(**table, **labels), task(**moved, **other)
    assert there.loss.item() == pytest.approx(here.loss.item(), rel=1e-5)
    if name == "single":
        assert torch.allclose(there.logits, here.logits, atol=1e-5)
    elif name != "answer or not":
        real = [one["attention_mask"] == 1 for one in (table, moved)]
        assert torch.allclose(there.logits[real[1]], here.logits[real[0]], atol=1e-5)
    if name in ("tag", "crf"):
        assert torch.equal(task.tags(**moved)[real[1]], task.tags(**table)[real[0]])
    if isinstance(task.model, JointAnswer):
        spans, theirs = task(**table).spans, task(**moved).spans
        assert torch.equal(theirs.starts[:, 0], spans.starts[:, 0] + shift)


def test_an_option_that_is_not_there(folders: dict[str, Path]) -> None:
    """Catches: a label that counts options which a mask of zeros leaves out."""
    task = albertine.load_task(folders["choose"])
    table, labels, _ = inputs("choose", task, folders["choose"])
    first = {name: x.flip(1) for name, x in table.items()}  # what is missing of the second now comes first
    moved = torch.tensor([0, 1])
    assert task(**first, labels=moved).loss.item() == pytest.approx(
        task(**table, **labels).loss.item(), rel=1e-5
    )
    with pytest.raises(InputError, match="labels names an option whose attention_mask is all 0"):
        task(**first, labels=torch.tensor([0, 0]))


def test_calls_that_cannot_be(folders: dict[str, Path]) -> None:
    single, answer, choose = (albertine.load_task(folders[n]) for n in ("single", "answer", "choose"))
    tag, crf, multi = (albertine.load_task(folders[n]) for n in ("tag", "crf", "multi"))
    score, embed, compared = (albertine.load_task(folders[n]) for n in ("score", "embed", "compared"))
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 8, 3]])
    for call, message in (
        (lambda: single(ids, labels=[0, 3]), "labels holds 3, and the numbers are 0 to 2"),
        (lambda: single(ids, labels=[0.0, 1.0]), "labels is torch.float32. Give whole numbers"),
        (lambda: single(ids, labels=[0]), r"labels has the shape \(1,\). Give it as \(2,\)"),
        (lambda: multi(ids, labels=[0, 1]), r"Give it as \(2, 3\)"),
        (lambda: multi(ids, labels=[[1, 0, 0], [7, -3, 0]]), "labels holds 7, and a class is 0 or 1"),
        (lambda: multi(ids, labels=[[1, 0, 0], [-100] * 3]), "labels holds -100, and a class is 0 or 1"),
        (lambda: multi(ids, labels=[[1, 0, 0], [0, 0, float("nan")]]), "labels holds nan"),
        (lambda: score(ids, labels=[0.5, float("nan")]), "labels holds nan, and a score is a finite number"),
        (lambda: score(ids, labels=[float("inf"), 1.0]), "labels holds inf"),
        (lambda: embed(ids[None], labels=[5.0]), "labels holds 5, and a similarity is from 0 to 1"),
        (lambda: embed(ids[None], labels=[-0.5]), "labels holds -0.5"),
        (lambda: embed(ids[None], labels=[float("nan")]), "labels holds nan"),
        (lambda: single(ids, labels=["a", "b"]), r"labels is no table of numbers: \['a', 'b'\]"),
        (
            lambda: answer(ids, start_positions=["a", "b"], end_positions=[0, 0]),
            "start_positions is no table",
        ),
        (lambda: single(ids, start_positions=[0, 1]), "does not learn from start_positions. Give labels"),
        (
            lambda: answer(ids, labels=[0, 1]),
            "does not learn from labels. Give start_positions and end_positions",
        ),
        (lambda: answer(ids, start_positions=[0, 1]), "Give start_positions and end_positions"),
        (lambda: answer(ids, start_positions=[0, 4], end_positions=[0, 0]), "start_positions names a column"),
        (lambda: choose(ids), r"Give it as \(batch, options, length\)"),
        (lambda: tag(ids[None]), r"Give it as \(batch, length\)"),
        (lambda: tag(ids, torch.tensor([[1, 1, 1, 0]] * 2), labels=torch.zeros_like(ids)), "tags of padding"),
        (lambda: crf(ids, labels=torch.full_like(ids, -100)), "a CRF scores whole sequences"),
        (lambda: single(ids + 1000), "input_ids holds"),
        (lambda: single(ids.tolist()), "input_ids is of the type list. Give a tensor"),
        (lambda: tag.tags(ids.numpy()), "input_ids is of the type ndarray. Give a tensor"),
        (lambda: single(ids, [[1, 1, 1, 1]] * 2), "attention_mask is of the type list. Give a tensor"),
        (lambda: compared(ids), "compares two texts, which token_type_ids separates"),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert single(ids, labels=[-100, -100]).loss.item() == 0
    left_out = single(ids, labels=[-100, 2]).loss
    assert left_out.item() == pytest.approx(single(ids[1:], labels=[2]).loss.item(), rel=1e-5)


def test_tags_of_special_tokens_do_not_count_for_a_crf(folders: dict[str, Path]) -> None:
    """Catches: a mean over tokens that the field does not score."""
    task = albertine.load_task(folders["crf"])
    ids = torch.tensor([[2, 5, 6, 3], [2, 7, 8, 3]])
    whole = torch.tensor([[0, 1, 2, 0], [0, 2, 1, 0]])
    inner = whole.clone()
    inner[:, [0, -1]] = -100
    loss = task(ids, labels=whole).loss
    assert loss.item() == pytest.approx(task(ids, labels=inner).loss.item(), rel=1e-6)


def test_what_has_no_head_to_train(folders: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match=r"not tuned for a task.*albertine\.finetune"):
        albertine.load_task(folders["fill-mask"])
    with pytest.raises(ModelError, match=r"find relations.*task\.kind=relations"):
        albertine.load_task(folders["relate"])


def test_load_warns_that_it_leaves_the_head_out(folders: dict[str, Path]) -> None:
    with pytest.warns(UserWarning, match=r"leaves out the head of its task \(choose\).*load_task") as warned:
        albertine.load(folders["choose"])
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match=r"leaves out the whitening of its vectors.*load_task"):
        albertine.load(folders["embed whitened"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        albertine.load(folders["fill-mask"])
        albertine.load(folders["embed"])
        albertine.load_task(folders["choose"])
        albertine.Predictor(folders["choose"])


@pytest.mark.parametrize("name", ["single", "crf", "choose", "answer or not", "embed whitened"])
def test_what_was_trained_is_saved_with_its_head(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    task = albertine.load_task(folders[name])
    table, labels, _ = inputs(name, task, folders[name])
    task.train()
    optimizer = torch.optim.SGD(task.parameters(), lr=0.05)
    loss = task(**table, **labels).loss
    loss.backward()
    optimizer.step()
    albertine.save(task, albertine.load_tokenizer(folders[name]), tmp_path / "again")
    again = albertine.load_task(tmp_path / "again")
    with torch.no_grad():
        ours, theirs = task.eval()(**table), again(**table)
    assert torch.equal(ours.logits, theirs.logits)
    assert again.labels == task.labels and FAMILIES[name].task == again.task
    assert albertine.Predictor(tmp_path / "again").family.settings == task.family.settings
