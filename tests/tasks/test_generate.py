"""Texts that are written: encoding, real files, training, transformers' head, own files, the command."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.continuation import Going
from albertine.inference.search import Draw, Search
from albertine.inference.seq2seq_rows import Written
from albertine.inference.windows import WindowSettings
from albertine.interop.heads import task_of
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.model.model import Model
from albertine.model.task_model import predicting_rows
from albertine.tasks.answer import Question
from albertine.tasks.dataset_registry import Dataset
from albertine.tasks.datasets.generation import read_questions, read_texts, webqa_file
from albertine.tasks.finetune import finetune
from albertine.tasks.generate import Read, Room, Write, encode_questions, encode_texts
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.task_data import read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.model import builders
from tests.tasks.conftest import Tune
from tests.tasks.test_answer import squad

WORDS = ["the", "house", "and", "old", "man", "time", "good", "never"]


def own(path: Path) -> Iterator[Question]:
    return read_questions(Dataset(kind="reading", files={"train": (path,)}), path.parent, "train")


def texts(path: Path, count: int, seed: int) -> Path:
    """The target is the first word of the source, and the last after it."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = [str(w) for w in rng.choice(WORDS, 4)]
        rows.append({"source": " ".join(words), "target": f"{words[0]} {words[-1]}"})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def writing(where: Path, **more: object) -> dict[str, object]:
    return {
        "train": texts(where / "train.jsonl", 600, 1),
        "dev": texts(where / "dev.jsonl", 40, 2),
        "kind": "generation",
        "text": "source",
        "label": "target",
        "max_length": 32,
        "target_length": 8,
        **more,
    }


@pytest.fixture(scope="module")
def written(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a model that has learned the toy task."""
    from albertine.core.settings import resolve
    from albertine.tasks.settings import FinetuneSettings

    folder = tmp_path_factory.mktemp("writing")
    tree = {
        "name": "toy",
        "output": folder / "runs",
        "task": writing(folder),
        "encoder": {"folder": pretrained},
        "training": {
            "precision": "float32",
            "epochs": 6,
            "batch_size": 8,
            "micro_batch_tokens": 512,
            "learning_rate": 0.006,
        },
        "watching": {"log_every": 50, "evaluations": 2, "tensorboard": False},
    }
    result = finetune(resolve(FinetuneSettings, tree), reporter=Reporter(quiet=True))
    assert result.scores["text_exact"] > 0.8, result.scores
    assert result.scores["rouge_l"] >= result.scores["text_exact"]
    return result.folder


def test_a_run_learns_and_its_folder_generates_the_same(written: Path) -> None:
    lines = [json.loads(line) for line in (written / "predictions-dev.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in (written.parents[1] / "dev.jsonl").read_text().splitlines()]
    predictor = Predictor(written / "best", precision="float32")
    assert predictor.writer.room == Room(24, 8)
    for line, row in list(zip(lines, rows, strict=True))[:10]:
        assert line["label"] == [row["target"]]
        best = predictor.generate(row["source"])[0]
        assert best.text == line["prediction"]
        assert best.score == pytest.approx(line["score"], abs=1e-4)
    greedy = predictor.generate("the old good man", how=Search(1, 8))
    assert len(greedy) == 1
    short = predictor.generate("the old good man", how=Search(1, 2))
    assert greedy[0].text.startswith(short[0].text) and len(predictor.tokenizer.encode(short[0].text)) == 1


def test_drawn_texts_are_a_function_of_the_seed(written: Path) -> None:
    predictor = Predictor(written / "best", precision="float32")
    draw = Draw(count=6, max_tokens=8, temperature=3.0, seed=5)
    first = predictor.generate("the old good man", how=draw)
    assert first == predictor.generate("the old good man", how=draw)
    other = predictor.generate("the old good man", how=Draw(count=6, max_tokens=8, temperature=3.0, seed=6))
    assert first != other and len(first) == 6
    for pair in (("a\ud800",), ("a", "\ud800")):
        with pytest.raises(DataError, match="has half of a character"):
            predictor.generate(*pair)


def test_transformers_loads_the_head_and_computes_the_same(written: Path) -> None:
    from transformers import AutoModelForMaskedLM

    folder = written / "best"
    theirs = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
    found = read_folder(folder)
    assert task_of(found) == "generate" and found.model.heads == {"mlm"}
    tokenizer = load_tokenizer(folder)
    source, target = tokenizer.layout(tokenizer.encode("the old man"))[0], tokenizer.encode("the man")
    ids, types = [*source, *target], [0] * len(source) + [1] * len(target)
    sums = np.cumsum(types)
    seen = torch.from_numpy(sums[None, :] <= sums[:, None])[None, None]
    bias = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        logits = theirs(
            torch.tensor([ids]), attention_mask=bias, token_type_ids=torch.tensor([types])
        ).logits[0]
        packed = pack([ids], [types], [len(source)])
        ours = found.model.pretraining_forward(packed, torch.arange(len(ids)))[0]
    torch.testing.assert_close(ours, logits, atol=1e-4, rtol=1e-5)


def test_a_pretrained_model_was_not_tuned_to_generate(pretrained: Path) -> None:
    assert task_of(read_folder(pretrained)) is None
    with pytest.raises(ModelError, match="was not tuned for a task, and cannot generate texts"):
        Predictor(pretrained).generate("the")
    with pytest.raises(ModelError, match="was not tuned for a task, and cannot read"):
        Predictor(pretrained).read("the", ["old"])


def test_writers_and_readers_do_not_answer_for_each_other(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have one head, and the other's words are none of theirs."""
    writer, reader = str(written), str(changed(written, tmp_path / "reader", reads=True))
    (rows := tmp_path / "in.jsonl").write_text(json.dumps({"text": "a", "context": "a", "question": "b"}))
    of_file = ["--file", str(rows), "-o", str(tmp_path / "out.jsonl")]
    for words, message in (
        (["read", writer, "what", "the man"], "was tuned to generate texts, and cannot read"),
        (["read", writer, *of_file], "was tuned to generate texts, and cannot read"),
        (["generate", reader, "the man"], "was tuned to read, and cannot generate texts"),
        (["generate", reader, *of_file], "was tuned to read, and cannot generate texts"),
        (["tag", reader, "the man"], "was tuned to read, and cannot tag entities"),
    ):
        assert run(["predict", *words]) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()
    assert run(["predict", "read", reader, *of_file]) == 0


def test_rows_of_texts(tune: Tune, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    from albertine.tasks.examples import Example

    examples = [
        Example("a", "the old man", None, "good", ""),
        Example("b", "the old man", "was good", "", ""),
        Example("c", "the " * 40, None, "good " * 40, ""),
    ]
    data = encode_texts(examples, tokenizer, Room(16, 6))
    first, second, third = data.ids
    assert first.tolist() == [
        *tokenizer.layout(tokenizer.encode("the old man"))[0],
        *tokenizer.encode("good"),
        tokenizer.sep_id,
    ]
    pair = tokenizer.layout(tokenizer.encode("the old man"), tokenizer.encode("was good"))[0]
    assert second.tolist() == [*pair, tokenizer.sep_id]
    assert data.prefix == (len(first) - len(data.targets[0]), len(pair), 16)  # type: ignore[index]
    assert len(third) == 22 and third[-1] == tokenizer.sep_id and data.truncated == 1
    for ids, types, prefix, target in zip(data.ids, data.types, data.prefix, data.targets, strict=True):  # type: ignore[arg-type]
        assert types.tolist() == [0] * prefix + [1] * len(target)
        assert ids[prefix:].tolist() == target.tolist()
    batch = data.batch([2, 0])
    assert batch.predictions == len(batch.targets)
    assert torch.equal(batch.packed.input_ids[predicting_rows(batch.packed) + 1], batch.targets)


def test_errors_of_own_files_are_reported(tune: Tune, tmp_path: Path) -> None:
    settings = tune(task=writing(tmp_path))
    tokenizer = load_tokenizer(settings.encoder.folder)
    with pytest.raises(DataError, match=r"train\.jsonl:1: has no column `text`"):
        read_data(tune(task=writing(tmp_path, text="text")).task, tokenizer)
    with pytest.raises(DataError, match=r"train\.jsonl:1: has no `title`, the text to be written"):
        read_data(tune(task=writing(tmp_path, label="title")).task, tokenizer)
    with pytest.raises(SettingsError, match="leaves 4 tokens for the source"):
        read_data(tune(task=writing(tmp_path, max_length=12)).task, tokenizer)
    odd = tmp_path / "odd.jsonl"
    rows = [
        {"source": "the " * 50, "target": "old"},
        {"source": "", "target": ""},
        {"source": "a", "target": "b"},
    ]
    odd.write_text("\n".join(map(json.dumps, rows)))
    notes = read_data(tune(task=writing(tmp_path, train=odd)).task, tokenizer).notes
    assert notes[0] == "train: 3 examples, 1 without a source, 1 with an empty target, 1 cut to 32 tokens"
    known = {"dataset": "tnews", "folder": tmp_path, "train": None, "dev": None}
    with pytest.raises(SettingsError, match="`tnews` is no data set of the kind generation"):
        read_data(tune(task=writing(tmp_path, **known)).task, tokenizer)


def test_a_file_without_a_single_target_has_no_answers(tune: Tune, written: Path, tmp_path: Path) -> None:
    """One target among them makes the empty ones answers: to write nothing."""
    tokenizer = load_tokenizer(written / "best")
    bare, some = tmp_path / "bare.csv", tmp_path / "some.csv"
    bare.write_text("source,target\nthe old man,\nthe house, \n")
    some.write_text("source,target\nthe old man,man\nthe house,\n")
    (judged,) = evaluate_run(open_run(written, file=bare), ["test"])
    assert len(judged.answers) == 2 and judged.scores == {}
    (judged,) = evaluate_run(open_run(written, file=some), ["test"])
    assert judged.scores.keys() == {"rouge_l", "text_f1", "text_exact"}
    for split in ("train", "dev"):
        with pytest.raises(DataError, match=r"bare\.csv:2: has no `target`, the text to be written"):
            read_data(tune(task=writing(tmp_path, **{split: bare})).task, tokenizer)
    dev = read_data(tune(task=writing(tmp_path, dev=some)).task, tokenizer).dev
    assert dev is not None and [example.label for example in dev.examples] == ["man", ""]


@pytest.mark.parametrize("kinds", [0, 1])
def test_an_encoder_without_segments_is_refused_with_a_remedy(kinds: int) -> None:
    family = Write(SimpleNamespace(), Room(24, 8), Search(1, 8))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=rf"knows {kinds} kinds of segments.*Use an encoder with type_vocab"):
        family.build(builders.model(type_vocab_size=kinds), 0.0, 0)


def test_a_checkpoint_without_the_head_is_refused(tune: Tune, pretrained: Path, tmp_path: Path) -> None:
    found = read_folder(pretrained).model
    bare = Model(found.config, {"pooler"})
    save_model(bare, load_tokenizer(pretrained), tmp_path / "bare")
    with pytest.raises(ModelError, match="has no masked-LM head"):
        finetune(
            tune(task=writing(tmp_path), encoder={"folder": tmp_path / "bare"}), reporter=Reporter(quiet=True)
        )


FAST = {"epochs": 6, "batch_size": 8, "learning_rate": 0.006}


def reading(folder: Path) -> dict[str, object]:
    return {
        "train": squad(folder / "train.json", 240, 1),
        "dev": squad(folder / "dev.json", 40, 2),
        "kind": "reading",
        "max_length": 32,
        "target_length": 6,
    }


def test_a_run_learns_to_read(tune: Tune, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = finetune(tune(task=reading(tmp_path), training=FAST), reporter=Reporter(quiet=True))
    assert result.scores["text_exact"] > 0.8, result.scores
    predictor = Predictor(result.folder / "best", precision="float32")
    passages = ["the old man and the time good house", "the house and the old house"]
    found = predictor.read("what", passages)
    assert found[0].text == "good"
    assert all(any(w.text in passage for passage in passages) for w in found)
    assert predictor.read("what", passages[0])[0].text == "good"
    with pytest.raises(DataError, match=r"^question: has half of a character"):
        predictor.read("what\ud800", passages)
    with pytest.raises(DataError, match="no passage"):
        predictor.read("what", [])
    arguments = ["predict", "read", str(result.folder / "best"), "what", *passages]
    capsys.readouterr()
    assert (run(arguments), capsys.readouterr().out) == (0, "good\n")
    assert run([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["found"][0]["text"] == "good" and printed["found"][0]["score"] < 0


def test_the_command_writes(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(written / "best")
    lines = [json.loads(line) for line in (written / "predictions-dev.jsonl").read_text().splitlines()][:2]
    rows = [json.loads(line) for line in (written.parents[1] / "dev.jsonl").read_text().splitlines()][:2]
    capsys.readouterr()
    assert run(["predict", "generate", folder, *(row["source"] for row in rows)]) == 0
    assert capsys.readouterr().out.splitlines() == [line["prediction"] for line in lines]
    arguments = ["predict", "generate", folder, "the old", "--samples", "3", "--temperature", "2", "--json"]
    runs = [(run(arguments), capsys.readouterr().out) for _ in range(2)]
    assert runs[0] == runs[1] and runs[0][0] == 0
    assert len(json.loads(runs[0][1])["found"]) == 3
    assert run(["predict", "generate", folder, "the old man " * 200, "--max-tokens", "2"]) == 0
    assert capsys.readouterr().err.splitlines() == ["warning: 1 texts were too long and lost their end"]


def changed(written: Path, folder: Path, **search: object) -> Path:
    """A copy of the tuned folder with other settings of its head."""
    shutil.copytree(written / "best", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "albertine": {**config["albertine"], **search}})
    )
    return folder


def test_a_single_text_is_predicted_as_a_file_is(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, text = str(changed(written, tmp_path / "greedy", beams=1)), "never old old house time"
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps({"text": text}))
    command = ["predict", "generate", model, "--precision", "float32"]
    assert run([*command, "--file", str(source), "-o", str(output)]) == 0
    capsys.readouterr()
    assert run([*command, text, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["found"]
    of_file = json.loads(output.read_text())
    assert found["text"] == of_file["prediction"]
    assert found["score"] == pytest.approx(of_file["score"], abs=1e-5)
    for option in (["--beams", "1"], ["--samples", "3"], ["--max-tokens", "2"], ["--seed", "9"], ["--json"]):
        assert run([*command, "--file", str(source), "-o", str(tmp_path / "no.jsonl"), *option]) == 2
        assert f"{option[0]}: means nothing with --file" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "no.jsonl").exists()


def test_a_generative_reader_predicts_with_the_settings_of_its_evaluation(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, calls = str(changed(written, tmp_path / "m", beams=3, reads=True, always=True)), []

    def noted(model: object, tokenizer: object, questions: object, how: Search, **more: bool) -> object:
        calls.append((how.beams, more["always"]))
        return [[Written("a", 0.0)]]

    monkeypatch.setattr("albertine.tasks.predictor.generate_answers", noted)
    words = ["predict", "read", model, "what", "the man"]
    for more in ([], ["--no-always"], ["--beams", "1"]):
        assert run([*words, *more]) == 0
    assert calls == [(3, True), (3, False), (1, True)]
    for option in ("--free", "--always"):
        assert run([*words[:3], "--file", "x.jsonl", "-o", "y.jsonl", option]) == 2
        assert f"{option}: means nothing with --file" in capsys.readouterr().err.replace("\n", " ")


def test_windows_of_a_question_and_their_targets(tune: Tune, tmp_path: Path) -> None:
    from albertine.tasks.answer import Question

    tokenizer = load_tokenizer(tune().encoder.folder)
    passage = "the old man " * 10 + "said never " + "and the house " * 10
    question = Question("q", "what", passage, (("never", passage.index("never")),), "")
    other = Question("q", "what", "the old man", (("never", -1),), "")
    room = Room(24, 4)
    apart = encode_questions([question, other], tokenizer, room, together=False)
    assert apart.sizes == (len(apart.ids) - 1, 1) and apart.sizes[0] > 3
    targets = [ids[p:].tolist() for ids, p in zip(apart.ids, apart.prefix, strict=True)]  # type: ignore[arg-type]
    shows = [tokenizer.decode(ids[:p]).count("never") for ids, p in zip(apart.ids, apart.prefix, strict=True)]  # type: ignore[arg-type]
    assert 0 < sum(shows) < len(shows)
    assert all(own[-1] == tokenizer.sep_id for own in targets)
    assert [tokenizer.decode(own[:-1]) for own in targets] == ["never" if shown else "" for shown in shows]
    assert np.concatenate(apart.targets).tolist() == [t for own in targets for t in own]  # type: ignore[arg-type]
    whole = encode_questions([question, other], tokenizer, room, together=True)
    assert whole.sizes == (len(apart.ids),) and whole.examples[0].label == ("never",)
    assert [len(e.passages) for e in whole.examples] == [2]
    others = [replace(question, question="who"), replace(question, where="f:2")]
    assert len(encode_questions([question, *others], tokenizer, room, together=True).examples) == 3
    unknown = encode_questions([Question("q", "what", passage, (), "")], tokenizer, room, together=True)
    assert unknown.targets is None and unknown.examples[0].label is None


def test_truncated_questions_are_reported(
    tune: Tune, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is counted once, in however many passages and windows it is."""
    monkeypatch.setattr(
        "albertine.inference.generative_reading.WindowSettings", partial(WindowSettings, question=4)
    )
    predictor = Predictor(changed(written, tmp_path / "m", reads=True))
    long, passages = "what was the old man said to be", ["the old man and the good house " * 4, "a man"]
    predictor.read("what", passages)
    assert predictor.cut == 0
    predictor.read(long, passages)
    assert predictor.cut == 1
    rows = [{"context": passages[0], "question": question} for question in ("what", long, long)]
    list(predictor.predict(rows))
    assert predictor.cut == 3
    monkeypatch.undo()
    long_ones = {"dev": squad(tmp_path / "long.json", 5, 3, question="old " * 70), "max_length": 96}
    data = read_data(tune(task={**reading(tmp_path), **long_ones}).task, predictor.tokenizer)
    assert data.notes == ("train: 240 examples", "dev: 5 examples, 5 with a question cut to 64 tokens")


def test_whether_every_question_gets_an_answer_is_learned_from_the_file(tune: Tune, tmp_path: Path) -> None:
    task = reading(tmp_path)
    tokenizer = load_tokenizer(tune().encoder.folder)
    data = read_data(tune(task=task).task, tokenizer)
    assert isinstance(data.family, Read) and data.family.always
    assert data.notes == ("train: 240 examples", "dev: 40 examples")
    tree = json.loads((tmp_path / "train.json").read_text())
    paragraphs = tree["data"][0]["paragraphs"]
    paragraphs[0]["qas"][0] |= {"answers": [], "is_impossible": True}
    (tmp_path / "train.json").write_text(json.dumps(tree))
    data = read_data(tune(task=task).task, tokenizer)
    assert isinstance(data.family, Read) and not data.family.always
    assert data.notes[0] == (
        "train: 240 examples, 1 without an answer in their passage, whose target is empty"
    )
    for number, paragraph in enumerate(paragraphs):
        paragraph["qas"][0] |= {"id": "1", "question": f"what {number}"}
    (tmp_path / "train.json").write_text(json.dumps(tree))
    assert not read_data(tune(task=task).task, tokenizer).family.always  # type: ignore[attr-defined]
    for paragraph in paragraphs[1:]:
        paragraph["qas"][0]["answers"][0]["text"] = "elsewhere"
    (tmp_path / "train.json").write_text(json.dumps(tree))
    with pytest.raises(DataError, match="has no answer that stands in its passage"):
        read_data(tune(task=task).task, tokenizer)


def test_answers_that_cannot_be_written_are_counted_and_named(tune: Tune, tmp_path: Path) -> None:
    """Catches: a long answer that trains the empty answer; a note without the place."""
    tokenizer, many = load_tokenizer(tune().encoder.folder), "good " * 20
    rows = [("he was good and old", "good"), (f"the {many}man", many.strip()), ("he was", "never")]
    questions = [
        Question(str(i), "what", passage, ((answer, passage.find(answer)),), f"f:{i}")
        for i, (passage, answer) in enumerate(rows)
    ]
    missed = (
        "with an answer that is not in a passage, never predicted as a whole (the first: question 2 in f:2)"
    )
    for room, what in (
        (Room(64, 16), "of more than task.target_length=16 tokens, {} (the first: question 1 in f:1)"),
        (Room(16, 32), "that no window of 16 tokens shows as a whole, {} (the first: question 1 in f:1)"),
    ):
        judged = encode_questions(questions, tokenizer, room, together=True)
        assert judged.lost == (
            (1, f"with an answer {what.format('never predicted as a whole')}"),
            (1, missed),
        )
        learned = encode_questions(questions, tokenizer, room, together=False)
        fate = "left out" if room.source == 16 else "learned without its end"
        assert learned.lost == ((1, f"with an answer {what.format(fate)}"),)
        assert [one.name for one in learned.examples] == ["0", "1", "2"][:: 2 if fate == "left out" else 1]


def test_a_file_of_answers_that_no_window_shows_is_refused(tune: Tune, tmp_path: Path) -> None:
    many = " ".join(["good"] * 60)
    row = {"context": f"the {many} man", "question": "what", "answers": {"text": [many], "answer_start": [4]}}
    (tmp_path / "long.jsonl").write_text(json.dumps(row))
    task = {**reading(tmp_path), "train": tmp_path / "long.jsonl", "max_length": 48, "target_length": 16}
    task |= {"text": "text", "label": "label"}
    with pytest.raises(DataError, match=r"long\.jsonl.*no answer.*1 with an answer that no window of 32"):
        read_data(tune(task=task).task, load_tokenizer(tune().encoder.folder))


def test_the_real_sample_of_webqa(shared_data: Path) -> None:
    found = list(webqa_file(shared_data / "webqa_sample" / "test_file_example.json.xz"))
    assert len(found) == 4000
    assert len({q.name for q in found}) == 200
    assert set(Counter(q.name for q in found).values()) == {20}
    assert all(q.answers and q.question for q in found)
    assert found[0].question == "中国商代最后一个君王是谁?"
    assert found[0].answers == (("纣王", found[0].passage.find("纣王")),)
    stands = sum(q.answers[0][1] >= 0 for q in found)
    assert 2119 <= stands <= 2119 + 116 + 60  # positive, answer hit, and whatever word cuts hid
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")
    data = encode_questions(found[:200], tokenizer, Room(320, 32), together=True)
    assert len(data.examples) == 10 and max(map(len, data.ids)) <= 352
    assert own(shared_data / "webqa_sample" / "test_file_example.json.xz") is not None


def test_cmrc_is_read_by_generation(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")
    found = list(own(shared_data / "cmrc2018" / "trial.json.xz"))
    assert len(found) == 1002
    data = encode_questions(found[:100], tokenizer, Room(320, 32), together=False)
    assert data.targets is not None and len(data.examples) == 98  # two begin or end inside a token
    answered = right = 0
    for example, target in zip(data.examples, data.targets, strict=True):
        parts = np.split(
            target, np.flatnonzero(target == tokenizer.sep_id)
        )  # a window's tokens after the [SEP] of the one before
        texts = {example.words(tuple(int(t) for t in part if t != tokenizer.sep_id)) for part in parts} - {""}
        answered += bool(texts)
        right += any(text in gold for text in texts for gold in example.label)
    assert answered >= 95 and right / answered > 0.95  # else a piece reaches beyond it


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"q_key": "a", "evidences": [{"evidence_tokens": ["a"]}]}')
    with pytest.raises(DataError, match=r"a\.json:1: is not a question of WebQA"):
        list(own(tmp_path / "a.json"))
    (tmp_path / "b.json").write_text('{"data": 3}')
    with pytest.raises(DataError, match="is not a file in SQuAD's format"):
        list(own(tmp_path / "b.json"))
    (tmp_path / "c.json").write_text(
        '{"q_key": "a", "question_tokens": ["New", "York", "在", "哪", "里"], "evidences": '
        '[{"evidence_tokens": ["在", "USA", "。"], "golden_answers": [["no_answer"]]}]}'
    )
    (question,) = own(tmp_path / "c.json")
    assert (question.question, question.passage, question.answers) == ("New York在哪里", "在USA。", ())


def test_a_target_that_just_fits_is_not_truncated(tune: Tune) -> None:
    from albertine.tasks.examples import Example
    from albertine.tasks.generate import LEAST_SOURCE

    tokenizer = load_tokenizer(tune().encoder.folder)
    target = "good " * 5
    count = len(tokenizer.encode(target))
    for room, cut in ((count + 1, 0), (count, 1)):  # the end needs a place as well
        data = encode_texts([Example("a", "the old man", None, target, "")], tokenizer, Room(16, room))
        assert sum(count for count, _ in data.lost) == cut
        assert data.truncated == 0 and data.targets is not None and len(data.targets[0]) == room
    assert Room.of(LEAST_SOURCE + 4, 4) == Room(LEAST_SOURCE, 4)
    with pytest.raises(SettingsError, match="leaves 7 tokens for the source"):
        Room.of(LEAST_SOURCE + 3, 4)


def test_every_search_setting_takes_effect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Temperature, shares, seed, penalty and memory, each in its place."""
    seen: list[object] = []

    class Noted:
        cut, writer = 0, SimpleNamespace(search=Search(4, 32))

        def __init__(self, model: object, **how: object) -> None: ...

        def generate(self, text: str, pair: object = None, *, how: object) -> list[Written]:
            seen.append(how)
            return []

        def go_on(self, text: str, how: object, going: object) -> list[Written]:
            seen.append((how, going))
            return []

    monkeypatch.setattr("albertine.tasks.predictor.Predictor", Noted)
    drawn = ["--samples", "2", "--max-tokens", "5", "--top-k", "3", "--top-p", "0.5"]
    drawn += ["--temperature", "0.7", "--seed", "9"]
    ranked = ["--beams", "2", "--max-tokens", "5", "--length-penalty", "0.3"]
    far = ["--left-to-right", "--memory", "16", "--segment", "4"]
    for words in (["generate", "m", "a", *drawn], ["generate", "m", "a", *ranked]):
        assert run(["predict", *words]) == 0
    for words in (drawn, ranked):
        assert run(["predict", "continue", "m", "a", *words, *far]) == 0
    draw, search, going = Draw(2, 5, 3, 0.5, 0.7, 9), Search(2, 5, 0.3), Going(True, 16, 4)
    assert seen == [draw, search, (draw, going), (search, going)]
    assert run(["predict", "generate", "m", "a"]) == run(["predict", "continue", "m", "a"]) == 0
    assert seen[4] == Search(4, 32) and seen[5] == (Search(1, 64), Going(None, 512, 128))
    for option, value in (("--top-k", "3"), ("--top-p", "0.5"), ("--temperature", "0.7"), ("--seed", "9")):
        for verb in ("generate", "continue"):
            assert run(["predict", verb, "m", "a", option, value]) == 2
            assert f"{option}: is for texts that are drawn: --samples" in capsys.readouterr().err
    for option, value in (("--beams", "2"), ("--length-penalty", "0.3")):
        assert run(["predict", "generate", "m", "a", "--samples", "2", option, value]) == 2
        assert f"{option}: is for the likeliest texts" in capsys.readouterr().err
    assert len(seen) == 6


def test_what_is_no_text_is_named(written: Path) -> None:
    for given, message in ((["a", "b"], "a list"), (None, "empty"), (float("nan"), "empty")):
        with pytest.raises(DataError, match=rf"^text: is {message}, not text"):
            Predictor(written / "best").generate(given)  # type: ignore[arg-type]


def test_the_index_that_pandas_writes_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(",text\n0,a b\n")
    tree = {"kind": "generation", "files": {"test": "t.csv"}, "test_columns": {"label": None}}
    (one,) = read_texts(Dataset.model_validate(tree), tmp_path, "test")
    assert one.label is None


def test_the_second_text_of_a_source_is_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, seen = Predictor(written / "best", precision="float32"), list[list[int]]()

    def noted(model: object, tokenizer: object, sources: list[list[int]], how: object) -> object:
        seen.extend(sources)
        return [[Written("a", 0.0)]]

    monkeypatch.setattr("albertine.tasks.predictor.generate_texts", noted)
    predictor.generate("the old man", "was good")
    encode = predictor.tokenizer.encode
    assert seen == [predictor.tokenizer.layout(encode("the old man"), encode("was good"))[0]]


def test_a_free_answer_is_requested_by_its_option(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, free = str(changed(written, tmp_path / "m", reads=True)), list[bool]()

    def noted(*given: object, extract: bool = True, **more: object) -> object:
        free.append(extract)
        return [[Written("a", 0.0)]]

    monkeypatch.setattr("albertine.tasks.predictor.generate_answers", noted)
    for more in ([], ["--free"]):
        assert run(["predict", "read", model, "what", "the man", *more]) == 0
    assert free == [True, False]
