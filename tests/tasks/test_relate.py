"""Relations: the real files, places of names, draws, the loss and both stages against loops, training, own
files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.core.settings import load
from albertine.errors import DataError, ModelError
from albertine.evaluation.metrics import score
from albertine.inference.triples import Relation, pointer_spans
from albertine.interop.huggingface.folders import load_model
from albertine.model.relation_head import Relations
from albertine.tasks.dataset_files import check_known
from albertine.tasks.dataset_registry import Dataset, named
from albertine.tasks.datasets.relations import predicate_names, predicates_of, read
from albertine.tasks.examples import Example
from albertine.tasks.finetune import FinetuneResult, TaskBatches, finetune
from albertine.tasks.predictor import Predictor
from albertine.tasks.relate import Relate, pointer_loss
from albertine.tasks.relation_rows import Names, Related, RelationBatch, encode
from albertine.tasks.rescore import open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

PREDICATES = ("founded", "sold")


def test_real_files_have_their_official_counts(shared_data: Path) -> None:
    folder = shared_data / "duie_sample"
    for split, sentences, triples in (("train", 2601, 5293), ("dev", 1000, 2073)):
        found = list(read(named("duie"), folder, split))
        assert len(found) == sentences
        assert sum(len(e.label or ()) for e in found) == triples
        names = predicate_names(found, folder)
        check_known("predicate", {split: found}, predicates_of, names)
        assert len(names) == 49 and names[:2] == ("祖籍", "父亲")
        assert set(predicate_names(found, None)) < set(names)


def test_places_lead_back_to_the_names(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")
    folder = shared_data / "duie_sample"
    examples = list(read(named("duie"), folder, "dev"))
    names = predicate_names(examples, folder)
    data = encode(examples, tokenizer, 128, names)
    assert data.targets is not None
    reached = 0
    for cut, places in zip(data.examples, data.targets, strict=True):
        text, spans = cut.example.text, cut.spans
        wanted = {(s.lower(), p, o.lower()) for s, p, o in cut.example.label}
        for a, b, kind, c, d in places.tolist():
            subject, thing = (text[spans.starts[i - 1] : spans.ends[j - 1]] for i, j in ((a, b), (c, d)))
            assert (subject.lower(), names[kind], thing.lower()) in wanted
            reached += 1
    unreached = [n for n, what in data.lost if "not in their text" in what or "inside a token" in what]
    assert reached + sum(unreached) == 2073
    assert reached > 0.97 * 2073


@pytest.fixture
def tokenizer(pretrained: Path) -> Tokenizer:
    return load_tokenizer(pretrained)


def test_a_name_is_a_run_of_whole_tokens(tokenizer: Tokenizer) -> None:
    text = "the houses of the house of Man"
    names = Names(text, tokenizer.encode_spans(text))
    ids = tokenizer.encode(text)
    first, last = names.place("house") or (0, 0)
    spans = tokenizer.encode_spans(text)
    assert (spans.starts[first - 1], spans.ends[last - 1]) == (18, 23)  # not the first five letters of houses
    assert names.place("man") == names.place("Man") and (names.place("man") or (0, 0))[1] == len(ids)
    assert names.place("ous") is None and "ous" in names
    assert names.place("") is None and "" not in names and "cat" not in names


def test_triples_that_cannot_be_learned_are_counted_and_score(tokenizer: Tokenizer) -> None:
    def sentence(text: str, *triples: tuple[str, str, str]) -> Example:
        return Example("x", text, None, triples, "f:1")

    examples = [
        sentence("the man sold the house", ("man", "sold", "house"), ("man", "sold", "time")),
        sentence("the man sold the house", ("man", "sold", "hou")),
        sentence("of time and of " * 8 + "house", ("time", "sold", "house")),
        sentence("he was old"),
    ]
    kept = encode(examples, tokenizer, 16, PREDICATES, learning=True)
    assert kept.lost == (
        (1, "triples not in their text, not learned (the first: `man · sold · time` in f:1)"),
        (2, "triples cut off or inside a token, not learned (the first: `man · sold · hou` in f:1)"),
        (2, "left out, none of their triples can be learned (the first: `the man sold the house` in f:1)"),
    )
    assert len(kept.examples) == 2 and kept.targets is not None
    assert [len(t) for t in kept.targets] == [1, 0]
    scored = encode(examples, tokenizer, 16, PREDICATES)
    assert len(scored.examples) == 4
    assert [(n, what.partition(" (")[0]) for n, what in scored.lost] == [
        (1, "triples not in their text, always missed"),
        (2, "triples cut off or inside a token, always missed"),
    ]
    family = Relate(PREDICATES, 32)
    perfect = [[("man", "sold", "house")], [], [], []]
    scores = score(family.gold(scored), perfect, family.metrics)
    assert scores == {"triple_precision": 1, "triple_recall": 1 / 4, "triple_f1": 2 / 5}


def test_a_name_that_ends_another_name_is_counted_as_ambiguous(
    tokenizer: Tokenizer,
) -> None:
    """Right pointers for all names lead back to those alone that are not counted."""
    objects = ["old", "old man", "time"]
    triples = tuple(("house", "sold", thing) for thing in objects)
    example = Example("x", "the old man of the house and time", None, triples, "f:1")
    data = encode([example], tokenizer, 32, PREDICATES)
    what = "triples of a name that another one ends in, always missed"
    assert data.lost == ((1, f"{what} (the first: `house · sold · old man` in f:1)"),)
    assert data.targets is not None and len(data.targets[0]) == 3
    pointers = np.zeros((len(data.ids[0]), 1, 2))
    for *_, begin, end in data.targets[0].tolist():
        pointers[begin, 0, 0] = pointers[end, 0, 1] = 1
    (found,) = pointer_spans(pointers, [len(data.ids[0])], (0.5, 0.5))
    assert {(a, b) for _, a, b in found} == {tuple(data.targets[0][i, 3:].tolist()) for i in (0, 2)}


def several(tokenizer: Tokenizer, count: int = 12) -> Related:
    """Texts with two or three subjects that have one or two objects each, and one without any."""
    rng = np.random.default_rng(4)
    words, examples = ["house", "man", "time", "day", "night", "king", "water", "God"], []
    for i in range(count):
        chosen = [str(w) for w in rng.permutation(words)[: 4 + i % 3]]
        triples = [(chosen[0], "founded", chosen[1]), (chosen[0], "sold", chosen[2])]
        triples += [(chosen[2], "sold", chosen[3]), (chosen[-1], "founded", chosen[0])]
        examples.append(Example(str(i), " and ".join(chosen), None, tuple(triples), f"f:{i}"))
    return encode([*examples, Example("no", "he was old", None, (), "f:0")], tokenizer, 32, PREDICATES)


def drawn(data: Related, chosen: list[int], seed: int, epoch: int) -> list[list[int]]:
    batch = data.batch(chosen, seed=seed, epoch=epoch)
    found: list[list[int]] = (batch.subjects - batch.packed.first_tokens[:, None]).tolist()
    return found


def test_a_draw_is_a_function_of_seed_epoch_and_text(tokenizer: Tokenizer) -> None:
    data = several(tokenizer)
    every = list(range(len(data.examples)))
    alone = [drawn(data, [i], 1, 5)[0] for i in reversed(every)]
    assert drawn(data, every, 1, 5) == alone[::-1]
    assert drawn(data, every, 1, 6) != alone[::-1] != drawn(data, every, 2, 5)
    seen = {
        (i, *ends) for epoch in range(60) for i, ends in zip(every, drawn(data, every, 1, epoch), strict=True)
    }
    assert data.targets is not None
    right = {(i, a, b) for i, target in enumerate(data.targets) for a, b, *_ in target.tolist()}
    assert right < seen  # every subject comes up; so do a beginning and an end of two different ones
    assert all(a <= b for _, a, b in seen)
    wrong = seen - right - {(12, 0, 0)}
    ends = {(i, b) for i, _, b in right}
    begins = {(i, a) for i, a, _ in right}
    assert wrong and all((i, a) in begins and (i, b) in ends for i, a, b in wrong)
    text, *pair = min(wrong)
    epoch = next(e for e in range(60) if drawn(data, [text], 1, e) == [pair])
    batch = data.batch([text], seed=1, epoch=epoch)
    assert batch.targets.any() and not batch.objects.any()


def parts_of_texts(batch: RelationBatch) -> list[list[object]]:
    """Tokens, ends of the subject and objects of every text."""
    offsets = batch.packed.cu_seqlens.tolist()
    return [
        [batch.packed.input_ids[a:b].tolist(), (ends - a).tolist(), batch.objects[a:b].nonzero().tolist()]
        for a, b, ends in zip(offsets, offsets[1:], batch.subjects, strict=False)
    ]


def test_the_stream_resumes_from_a_cursor_and_not_by_ranks(tune: Tune, tokenizer: Tokenizer) -> None:
    data, settings = several(tokenizer, 30), tune(training={"batch_size": 12, "micro_batch_tokens": 64})

    def take(stream: TaskBatches, count: int) -> list[tuple[dict[str, int], list[list[object]]]]:
        found = []
        for _, (cursor, batches) in zip(range(count), stream, strict=False):
            texts = [text for batch in batches for text in parts_of_texts(cast(RelationBatch, batch))]
            found.append((cursor, sorted(texts, key=str)))
        return found

    whole = take(TaskBatches(data, settings, None), 7)
    assert take(TaskBatches(data, settings, whole[3][0]), 3) == whole[4:]
    halves = [take(TaskBatches(data, settings, None, rank, 2), 3) for rank in range(2)]
    for i in range(3):
        assert sorted(halves[0][i][1] + halves[1][i][1], key=str) == whole[i][1]
    for epoch in (0, 1):
        texts = [text for _, texts in whole[3 * epoch : 3 * epoch + 3] for text in texts]
        batch = data.batch(range(31), seed=settings.seed, epoch=epoch)
        assert sorted(texts, key=str) == sorted(parts_of_texts(batch), key=str)


@pytest.mark.parametrize("power", [1, 2, 4])
def test_the_loss_of_a_pointer(power: int) -> None:
    logits = torch.linspace(-9, 9, 40, dtype=torch.float64)
    p = (1 / (1 + (-logits).exp())) ** power
    for target, expected in ((True, -p.log()), (False, -(1 - p).log())):
        found = pointer_loss(logits, torch.full((40,), target), power)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    far = torch.tensor([-300.0, 300.0], requires_grad=True)
    wrong = pointer_loss(far, torch.tensor([True, False]), power)
    wrong.sum().backward()
    assert wrong.tolist() == pytest.approx([300 * power, 300 - math.log(power)])
    assert far.grad is not None and far.grad.tolist() == pytest.approx([-power, 1])


@pytest.fixture
def model(pretrained: Path) -> Relations:
    """A head that depends on the subject, and points to about a third of the tokens."""
    found = Relations(load_model(pretrained), len(PREDICATES), seed=5).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight, sigma in (
            (found.scale.weight, 0.1),
            (found.shift.weight, 0.1),
            (found.subject.weight, 0.5),
            (found.object.weight, 0.5),
        ):
            weight.copy_(sigma * torch.randn(weight.shape, generator=generator))
        found.subject.bias.copy_(torch.tensor([0.9, 0.9]))
        found.object.bias.fill_(1.5)
    return found


def hidden(model: Relations, ids: np.ndarray) -> Tensor:
    """(L, H) float64 of one text, through the padded call, two columns of padding behind."""
    row = torch.nn.functional.pad(torch.from_numpy(ids.astype(np.int64)), (0, 2))[None]
    mask = (torch.arange(row.shape[1]) < len(ids)).long()[None]
    return model.base(row, attention_mask=mask).last_hidden_state[0, : len(ids)].double()


def object_chances(model: Relations, x_LH: Tensor, first: int, last: int) -> Tensor:
    """(L, predicates, 2) by the formulas."""
    ends = torch.cat([x_LH[first], x_LH[last]])
    scale = model.scale.weight.double() @ ends + model.scale.bias.double()
    shift = model.shift.weight.double() @ ends + model.shift.bias.double()
    rows = []
    for x in x_LH:
        plain = (x - x.mean()) / ((x - x.mean()) ** 2).mean().add(1e-12).sqrt()
        logits = model.object.weight.double() @ (plain * scale + shift) + model.object.bias.double()
        rows.append((1 / (1 + (-logits).exp())) ** 4)
    return torch.stack(rows).view(len(x_LH), -1, 2)


def subject_chances(model: Relations, x_LH: Tensor) -> Tensor:
    logits = x_LH @ model.subject.weight.double().T + model.subject.bias.double()
    return (1 / (1 + (-logits).exp())) ** 2


@torch.no_grad()
def test_the_loss_is_that_of_loops_over_texts(model: Relations, tokenizer: Tokenizer) -> None:
    data = several(tokenizer)
    every = list(range(len(data.examples)))
    batch = data.batch(every, seed=3, epoch=2)
    part = Relate(PREDICATES, 32).part(model, batch)
    total, tokens = 0.0, 0
    assert data.targets is not None
    for i, (first, last) in enumerate(drawn(data, every, 3, 2)):
        x = hidden(model, data.ids[i])
        subject, objects = subject_chances(model, x), object_chances(model, x, first, last)
        triples = data.targets[i].tolist()
        for place in range(len(x)):
            tokens += 1
            for side in (0, 1):
                is_subject = any(t[side] == place for t in triples)
                p = float(subject[place, side])
                total -= math.log(p if is_subject else 1 - p) / 2
                for k in range(len(PREDICATES)):
                    is_object = any(t[:3] == [first, last, k] and t[3 + side] == place for t in triples)
                    p = float(objects[place, k, side])
                    total -= math.log(p if is_object else 1 - p) / 2
    assert part.count == tokens == batch.num_tokens
    assert float(part.loss_sum) / part.count == pytest.approx(total / tokens, rel=1e-5)


@torch.no_grad()
def test_both_stages_find_what_loops_find(
    model: Relations, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertine.inference.triples.MAX_ROWS", 40)  # several second stages
    data, family = several(tokenizer, 20), Relate(PREDICATES, 32)
    found = family.predict(model, data)
    count = 0
    for i, cut in enumerate(data.examples):
        x, spans, expected = hidden(model, data.ids[i]), cut.spans, set()
        inside = range(1, len(x) - 1)
        subject = subject_chances(model, x)
        for first in inside:
            lasts = [j for j in inside if j >= first and subject[j, 1] > 0.5]
            if subject[first, 0] <= 0.6 or not lasts:
                continue
            objects = object_chances(model, x, first, lasts[0])
            for k, predicate in enumerate(PREDICATES):
                for begin in inside:
                    ends = [j for j in inside if j >= begin and objects[j, k, 1] > 0.5]
                    if objects[begin, k, 0] > 0.6 and ends:
                        subject_at = spans.starts[first - 1], spans.ends[lasts[0] - 1]
                        object_at = spans.starts[begin - 1], spans.ends[ends[0] - 1]
                        if object_at[0] < object_at[1] and subject_at[0] < subject_at[1]:  # else only a space
                            expected.add(Relation(subject_at, predicate, object_at))
        assert set(found[i]) == expected and len(found[i]) == len(expected)
        count += len(expected)
    assert count > 100 and not model.training


def test_pointers_stay_in_their_run_and_off_its_ends() -> None:
    chances = np.zeros((9, 2, 2))  # two runs: rows 0 to 4 and 5 to 8
    for row, kind, side in [(0, 0, 0), (1, 0, 0), (3, 1, 1), (4, 0, 1), (6, 0, 0), (7, 0, 1), (5, 1, 0)]:
        chances[row, kind, side] = 1
    assert pointer_spans(chances, [5, 4], (0.6, 0.5)) == [[], [(0, 1, 2)]]
    chances[2, 0, 1] = 0.55
    chances[3, 0, 1] = 0.9
    assert pointer_spans(chances, [5, 4], (0.6, 0.5)) == [[(0, 1, 2)], [(0, 1, 2)]]
    assert pointer_spans(chances, [5, 4], (0.6, 0.6)) == [[(0, 1, 3)], [(0, 1, 2)]]


def test_the_condition_begins_as_a_plain_norm(pretrained: Path) -> None:
    model = Relations(load_model(pretrained), 3).eval()
    packed = pack([[2, 10, 11, 12, 3]])
    with torch.no_grad():
        one, two = (model(packed, torch.tensor([ends]))[1] for ends in ([1, 1], [2, 3]))
        x = torch.nn.functional.layer_norm(model.base.encoder(packed).last_hidden, (32,), eps=1e-12)
        plain = x @ model.object.weight.T + model.object.bias
    assert torch.equal(one, two)
    torch.testing.assert_close(one.flatten(1), plain, atol=1e-6, rtol=1e-5)
    logits = model(packed, torch.tensor([[1, 1]]))[1]
    logits.square().sum().backward()
    assert float(model.scale.weight.grad.abs().sum()) > 0  # and learns to depend on it


WORDS = ["house", "man", "time", "day", "night", "king", "water", "God", "land", "day", "world", "people"]
VERBS = {"founded": "made", "sold": "gave"}


def stories(path: Path, count: int, seed: int) -> Path:
    """One or two sentences "a made b", of one word each."""
    rng = np.random.default_rng(seed)
    names, lines = sorted(set(WORDS)), []
    for _ in range(count):
        words = [str(w) for w in rng.permutation(names)[:4]]
        parts, triples = [], []
        for i in range(1 + int(rng.integers(2))):
            predicate = PREDICATES[int(rng.integers(2))]
            subject, thing = words[2 * i : 2 * i + 2]
            parts.append(f"the {subject} {VERBS[predicate]} the {thing}")
            triples.append([subject, predicate, thing])
        lines.append(json.dumps({"said": " and ".join(parts), "facts": triples}))
    path.write_text("\n".join(lines))
    return path


def task(tmp_path: Path) -> dict[str, object]:
    return {
        "train": stories(tmp_path / "train.jsonl", 500, 1),
        "dev": stories(tmp_path / "dev.jsonl", 80, 2),
        "text": "said",
        "label": "facts",
        "kind": "relations",
        "max_length": 32,
    }


def go(settings: FinetuneSettings) -> FinetuneResult:
    return finetune(settings, reporter=Reporter(quiet=True))


def test_a_run_learns_and_its_folder_relates(
    tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModel

    training = {"epochs": 7, "learning_rate": 0.005, "micro_batch_tokens": 512}
    text = "the king made the water"
    unlabelled = write(tmp_path / "test.jsonl", {"said": text})
    result = go(tune(task={**task(tmp_path), "test": unlabelled}, training=training))
    assert set(result.scores) == {"step", "triple_f1", "triple_precision", "triple_recall"}
    assert result.scores["triple_f1"] > 0.8
    best = result.folder / "best"
    predictor = Predictor(best, precision="float32")
    lines = [json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    right = 0
    for line in lines:
        found = [relation.words(line["text"]) for relation in predictor.relate(line["text"])]
        assert sorted(map(list, found)) == sorted(line["prediction"])
        right += sum(triple in line["label"] for triple in line["prediction"])
    count = sum(len(line["label"]) for line in lines)
    assert right / count == pytest.approx(result.scores["triple_recall"])
    assert predictor.relate("") == [] and isinstance(predictor.relate("the king " * 200), list)

    tested = json.loads((result.folder / "predictions-test.jsonl").read_text())
    assert tested == {"id": "0", "text": text, "prediction": [["king", "founded", "water"]]}
    assert [r.words(text) for r in predictor.relate(text)] == [("king", "founded", "water")]
    assert run(["predict", "relate", str(best), text]) == 0
    assert capsys.readouterr().out == f"{text}\n  king · founded · water\n"
    assert run(["predict", "relate", str(best), text, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"text": text, "relations": [["king", "founded", "water"]]}

    theirs = AutoModel.from_pretrained(best).eval()
    batch = predictor.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        wanted, ours = theirs(**batch), predictor.model(**batch)
    torch.testing.assert_close(ours.last_hidden_state, wanted.last_hidden_state, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.pooler_output, wanted.pooler_output, atol=1e-5, rtol=1e-5)


def test_an_interrupted_run_ends_like_an_uninterrupted_one(tune: Tune, tmp_path: Path) -> None:
    settings = {"task": task(tmp_path), "training": {"steps": 9}, "watching": {"evaluations": 3}}
    whole = go(tune(name="whole", **settings)).folder
    middle = whole / "checkpoints" / "step-6"
    again = finetune(tune(name="again", **settings), resume=middle, reporter=Reporter(quiet=True)).folder
    ours, theirs = ((f / "final" / "model.safetensors").read_bytes() for f in (again, whole))
    assert ours == theirs


def test_a_folder_records_its_predicates_and_thresholds(tune: Tune, tmp_path: Path) -> None:
    folder = go(tune(task=task(tmp_path), training={"steps": 1})).folder / "final"
    tree = json.loads((folder / "config.json").read_text())
    own = tree["albertine"]["own_head"]
    assert own["words"]["id2label"] == {"0": "founded", "1": "sold"} and "id2label" not in tree
    assert tree["albertine"]["task"] == "relate" and tree["albertine"]["thresholds"] == [0.6, 0.5]
    assert tree["architectures"] == ["AlbertineForRelate"]
    tree["albertine"]["thresholds"] = [0.7, 0.4]
    (folder / "config.json").write_text(json.dumps(tree))
    family = Predictor(folder).family
    assert isinstance(family, Relate)
    assert family.thresholds == (0.7, 0.4) and family.labels == PREDICATES
    scored = open_run(folder).family
    assert isinstance(scored, Relate) and scored.thresholds == (0.7, 0.4)
    for name, value, message in (
        ("thresholds", "high", "has thresholds 'high'"),
        ("task", "tag", "tuned to tag entities, and cannot find relations"),
    ):
        broken = {**tree, "albertine": {**tree["albertine"], name: value}}
        (folder / "config.json").write_text(json.dumps(broken))
        with pytest.raises(ModelError, match=message):
            Predictor(folder).relate("a text")
    own["words"]["id2label"] = {"0": "founded"}
    (folder / "config.json").write_text(json.dumps(tree))
    with pytest.raises(ModelError, match=r"object\.weight of shape \[4, 32\], expected \[2, 32\]"):
        Predictor(folder).relate("a text")


def test_a_pretrained_model_does_not_relate(pretrained: Path) -> None:
    with pytest.raises(ModelError, match="was not tuned for a task, and cannot find relations"):
        Predictor(pretrained).relate("a text")


def test_an_ensemble_keeps_what_half_of_it_found(tokenizer: Tokenizer) -> None:
    text = "the man and the man sold time"
    data = encode([Example("0", text, None, (), "f:1")], tokenizer, 32, PREDICATES)
    time = (25, 29)
    early, late = Relation((4, 7), "sold", time), Relation((16, 19), "sold", time)
    other, lone = Relation(time, "sold", (4, 7)), Relation(time, "founded", (4, 7))
    family = Relate(PREDICATES, 32)
    merged = family.merge([[[early, lone]], [[late, other]], [[other]], [[]]], data)
    assert merged == [[early, other]]  # `early` and `late` are one triple
    assert family.answers(merged, data) == [[("man", "sold", "time"), ("time", "sold", "man")]]
    assert family.merge([[[early, late]]], data) in ([[early]], [[late]])


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


GOOD = {"text": "the man sold time", "label": [["man", "sold", "time"]]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"text": "a", "label": [["man", "sold"]]}, r"holds \['man', 'sold'\].*three texts"),
        ({"text": "a", "label": [["man", "", "time"]]}, "holds a triple without a predicate"),
        ({"text": "a", "label": [["man", 3, "time"]]}, r"holds \['man', 3, 'time'\]"),
        ({"text": "a", "label": {"man": "time"}}, "`label` is not a list of triples"),
        ({"text": "  ", "label": []}, "`text` is empty"),
        ({"label": []}, "has no column `text`"),
        ({"text": None, "label": []}, "`text` is empty, not text"),
    ],
)
def test_wrong_own_files_are_reported_with_their_line(tmp_path: Path, line: object, message: str) -> None:
    path = write(tmp_path / "a.jsonl", GOOD, line)
    with pytest.raises(DataError, match=message) as caught:
        list(read(Dataset(kind="relations", files={"train": (path,)}), tmp_path, "train"))
    assert caught.value.where == f"{path}:2"


def test_wrong_files_of_duie(tmp_path: Path, tune: Tune, tokenizer: Tokenizer) -> None:
    spo = {"subject": "man", "predicate": "sold", "object": "time"}
    write(tmp_path / "train_data.json", {"text": "the man sold time", "spo_list": [spo]})
    del spo["predicate"]
    write(tmp_path / "dev_data.json", {"text": "the man sold time", "spo_list": [spo]})
    own = {
        "dataset": "duie",
        "folder": tmp_path,
        "train": None,
        "dev": None,
        "text": "text",
        "label": "label",
    }
    with pytest.raises(DataError, match=r"dev_data\.json:1.*`spo_list` holds"):
        read_data(tune(task=own).task, tokenizer)
    write(
        tmp_path / "dev_data.json", {"text": "the man sold time", "spo_list": [{**spo, "predicate": "made"}]}
    )
    with pytest.raises(DataError, match=r"dev_data\.json:1.*has the predicate `made`.*Known.*: sold"):
        read_data(tune(task=own).task, tokenizer)
    write(tmp_path / "all_50_schemas", {"predicate": "made"}, {"predicate": "sold"}, {"predicate": "made"})
    data = read_data(tune(task=own).task, tokenizer)
    assert data.family.labels == ("made", "sold") and data.test is None
    write(tmp_path / "all_50_schemas", {"predicate": "made"}, {"name": "sold"})
    with pytest.raises(DataError, match=r"all_50_schemas:2.*is not a schema"):
        read_data(tune(task=own).task, tokenizer)


def test_nothing_to_learn_from(tmp_path: Path, tune: Tune, tokenizer: Tokenizer) -> None:
    own = {"text": "text", "label": "label", "kind": "relations"}
    for label, message in (
        ([], "has no relations"),
        ([["cat", "sold", "dog"]], "has no triple to learn from"),
    ):
        path = write(tmp_path / "a.jsonl", {"text": "the man sold time", "label": label})
        with pytest.raises(DataError, match=message):
            read_data(tune(task={**own, "train": path, "dev": None}).task, tokenizer)
    write(tmp_path / "a.jsonl", GOOD)
    write(tmp_path / "b.jsonl", {"text": "the man sold time"})
    with pytest.raises(DataError, match=r"b\.jsonl:1: `\w+` is missing or empty"):
        read_data(
            tune(task={**own, "train": tmp_path / "a.jsonl", "dev": tmp_path / "b.jsonl"}).task, tokenizer
        )


@pytest.mark.matrix
def test_the_real_set_goes_the_whole_way(tune: Tune, shared_data: Path) -> None:
    own = {
        "dataset": "duie",
        "folder": shared_data / "duie_sample",
        "train": None,
        "dev": None,
        "text": "text",
        "label": "label",
        "max_length": 64,
    }
    result = go(
        tune(task=own, training={"steps": 2, "micro_batch_tokens": 4096}, watching={"evaluations": 1})
    )
    assert set(result.scores) == {"step", "triple_f1", "triple_precision", "triple_recall"}
    assert any("triples" in note for note in result.notes)


def test_the_recipe_is_that_of_bert4keras() -> None:
    path = Path(__file__).resolve().parents[2] / "recipes" / "finetune" / "duie.yaml"
    settings = load(FinetuneSettings, path)
    training = settings.training
    assert settings.name == settings.task.dataset == path.stem
    assert (settings.task.max_length, training.batch_size, training.learning_rate) == (128, 64, 1e-5)
    assert (training.schedule, training.warmup, training.weight_decay, training.clip) == (
        "constant",
        0,
        0,
        None,
    )
    assert training.epochs == settings.watching.evaluations == 20
    assert yaml.safe_load(path.read_text())["encoder"]["classifier_dropout"] == 0


def test_a_repeated_triple_is_written_once(tokenizer: Tokenizer) -> None:
    text = "the man and the man sold time"
    data = encode([Example("0", text, None, (), "f:1")], tokenizer, 32, PREDICATES)
    twice = [Relation((4, 7), "sold", (25, 29)), Relation((16, 19), "sold", (25, 29))]
    assert Relate(PREDICATES, 32).answers([twice], data) == [[("man", "sold", "time")]]
