"""The comparison of tuned models, on a task that takes no time."""

from __future__ import annotations

import csv
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

import albertine
from albertine.errors import ModelError
from benchmarks import transformers_baseline
from benchmarks.tuned import __main__ as tuned
from benchmarks.tuned import contest
from benchmarks.tuned.contest import Contest, language_of, untrained
from benchmarks.tuned.report import in_markdown
from benchmarks.tuned.tasks import TASKS, Files, Task, part_pairs
from tests import stand_in

TOY = Task(
    "en",
    "accuracy",
    {"train": ["train.csv"], "dev": "dev.csv", "max_length": 128},
    rate=3e-3,
    batch=8,
    steps=20,
    note="made up",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in.put(tmp_path_factory.mktemp("models"), "en", seed=2)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    for name, count in (("train", 40), ("dev", 10)):
        rows = [f"the {word} cat sat,{word}" for word in ("good", "old") * (count // 2)]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder


def test_end_to_end_and_again(
    model: Path, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setitem(TASKS, "toy", TOY)
    work = tmp_path / "work"
    words = [str(model), "--shared", str(shared), "--tasks", "toy", "--seeds", "2", "--work", str(work)]
    words += ["--contestants", "model", "untrained", f"peer={model}"]
    tuned.main(words)
    results = [json.loads(path.read_text()) for path in sorted((work / "results").iterdir())]
    assert [(r["contestant"], r["seed"]) for r in results] == [
        (who, seed) for who in ("model", "peer", "untrained") for seed in (1, 2)
    ]
    assert {r["steps"] for r in results} == {20}
    by_name = {(r["contestant"], r["seed"]): r["score"] for r in results}
    assert by_name["model", 1] == by_name["peer", 1]  # the same weights and seed
    assert not any((work / "runs").iterdir())  # nothing large stays
    table = capsys.readouterr().out
    assert "| toy | accuracy |" in table and "- toy: made up." in table
    assert (work / "table.md").read_text() in table

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("what is done is done again")

    with monkeypatch.context() as done:
        done.setattr(contest, "finetune", refuse)
        tuned.main(words)
        (work / "results" / "toy-model-2.json").unlink()
        with pytest.raises(AssertionError, match="done again"):
            tuned.main(words)
    tuned.main(words)  # only what is missing
    assert (work / "results" / "toy-model-2.json").is_file()
    (shared / "dev.csv").write_text((shared / "dev.csv").read_text() + "a cat,old\n")
    with monkeypatch.context() as changed:
        changed.setattr(contest, "finetune", refuse)
        with pytest.raises(AssertionError, match="done again"):
            tuned.main(words)  # other files are another contest


def test_the_untrained_have_the_shape_and_nothing_else(model: Path, tmp_path: Path) -> None:
    folder = untrained(model, tmp_path / "u")
    found, given = albertine.load(folder), albertine.load(model)
    assert found.config == given.config and found.heads == given.heads
    words = [m.encoder.embeddings.word.weight for m in (found, given)]
    assert not torch.equal(*words)
    assert albertine.load_tokenizer(folder).fingerprint == albertine.load_tokenizer(model).fingerprint
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert untrained(model, folder).joinpath("model.safetensors").stat().st_mtime_ns == before


def test_an_unknown_contestant_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="write untraind=FOLDER"):
        tuned.contestants(["untraind"], model, tmp_path)
    with pytest.raises(ModelError):
        tuned.contestants(["peer=nowhere"], model, tmp_path)


def test_the_given_model_is_one_of_those_that_are_named(model: Path, tmp_path: Path) -> None:
    assert list(tuned.contestants([f"peer={model}"], model, tmp_path)) == ["peer"]
    assert tuned.contestants(["untrained", "model"], model, tmp_path)["model"] == model


def test_languages(tmp_path: Path) -> None:
    for language in ("en", "zh"):
        assert language_of(albertine.load_tokenizer(stand_in.put(tmp_path, language))) == language


def test_pairs_are_parted_without_a_text_in_common(tmp_path: Path) -> None:
    rows = [f"a{i}\tb{i % 7}\t{i % 2}" for i in range(30)]
    (tmp_path / "dev.tsv.xz").write_bytes(lzma.compress("\n".join(rows).encode()))
    files = part_pairs(tmp_path, tmp_path / "made", judged=3)
    train, dev = (list(csv.reader(path.open(encoding="utf-8"))) for path in files)
    assert dev[1:] == [row.split("\t") for row in rows[-3:]]
    held = {text for row in dev[1:] for text in row[:2]}
    assert held == {"a27", "a28", "a29", "b6", "b0", "b1"}
    assert train[1:] and held.isdisjoint(text for row in train[1:] for text in row[:2])
    assert len(train) == 1 + sum(i % 7 not in (6, 0, 1) for i in range(27))
    times = [path.stat().st_mtime_ns for path in files]
    assert [path.stat().st_mtime_ns for path in part_pairs(tmp_path, tmp_path / "made", judged=3)] == times


def test_every_task_is_a_run_that_can_begin(model: Path, shared_data: Path, tmp_path: Path) -> None:
    found = Contest({"model": model}, Files(shared_data, tmp_path / "data"), tmp_path)
    for name, task in TASKS.items():
        settings = found.settings(name, task, "model", 1, 3)
        assert settings.task.max_length == 64  # what the model reads
        if settings.task.kind == "answers":  # no token of a passage falls between two windows
            assert settings.task.answer.question + 3 + settings.task.answer.stride <= 64
        # What `finetune` takes by itself; Muon only where a passage is read.
        usual = {"adamw": 5e-4, "muon": 0.01}[settings.training.optimizer]
        assert settings.training.learning_rate == usual and settings.training.ema == 0
        assert (settings.training.optimizer == "muon") == (settings.task.kind == "answers")
        assert settings.watching.evaluations == 1 and settings.encoder.dropout is None
        for path in (*settings.task.own("train"), *settings.task.own("dev"), settings.task.folder):
            assert path is None or path.exists(), path


def test_the_table_lists_medians_and_ranges() -> None:
    results = [
        {"task": "sts-b", "contestant": who, "seed": seed, "score": score, "steps": 1200}
        for who, scores in (("model", (0.5, 0.7, 0.6)), ("untrained", (0.1, 0.2, 0.3)))
        for seed, score in enumerate(scores, 1)
    ]
    text = in_markdown(results, TASKS)
    assert "| sts-b | spearman | 1,200 | 60.0 (50.0 to 70.0; 3) | 20.0 (10.0 to 30.0; 3) |" in text
    assert "seeds 1, 2, 3;" in text and TASKS["sts-b"].note in text


@pytest.mark.matrix
def test_transformers_pretrains_a_folder_that_we_tune(corpus: Path, tmp_path: Path) -> None:
    tokenizer = albertine.load_tokenizer(corpus / "tokenizer")
    albertine.save(stand_in.rotary_model(tokenizer.vocab_size), tokenizer, tmp_path / "shape")
    words = [str(corpus), str(tmp_path / "shape"), str(tmp_path / "peer"), "--minutes", "0.02"]
    transformers_baseline.main([*words, "--batch-size", "4", "--max-length", "32"])
    found, shape = albertine.load(tmp_path / "peer"), albertine.load(tmp_path / "shape")
    assert "mlm" in found.heads and found.config.positions == "learned"
    for name in ("hidden_size", "embedding_size", "num_hidden_layers", "max_position_embeddings"):
        assert getattr(found.config, name) == getattr(shape.config, name)
    assert albertine.load_tokenizer(tmp_path / "peer").fingerprint == tokenizer.fingerprint
    record = json.loads((tmp_path / "peer" / "training.json").read_text())
    assert record["steps"] > 0 and record["seconds"] >= 1.2
    before = (tmp_path / "peer" / "model.safetensors").stat().st_mtime_ns
    transformers_baseline.main(words)  # what is there stays
    assert (tmp_path / "peer" / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.matrix
def test_a_baseline_of_updates_goes_on_where_it_was_stopped(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = albertine.load_tokenizer(corpus / "tokenizer")
    albertine.save(stand_in.rotary_model(tokenizer.vocab_size), tokenizer, tmp_path / "shape")
    words = [
        str(corpus),
        str(tmp_path / "shape"),
        str(tmp_path / "peer"),
        "--updates",
        "7",
        "--keep-every",
        "3",
    ]
    words += ["--batch-size", "4", "--max-length", "32"]
    seen: list[int] = []
    ended = transformers_baseline.Budget.on_step_end

    def stopped(self: Any, arguments: Any, state: Any, control: Any, **more: Any) -> None:
        seen.append(state.global_step)
        if seen == [1, 2, 3, 4]:
            raise KeyboardInterrupt
        ended(self, arguments, state, control, **more)

    monkeypatch.setattr(transformers_baseline.Budget, "on_step_end", stopped)
    with pytest.raises(KeyboardInterrupt):
        transformers_baseline.main(words)
    transformers_baseline.main(words)
    assert seen == [1, 2, 3, 4, 4, 5, 6, 7]
    record = json.loads((tmp_path / "peer" / "training.json").read_text())
    assert record["steps"] == 7 and "seconds" not in record
    assert [path.name for path in tmp_path.glob("peer*")] == ["peer"]


def test_models_of_two_runs_are_distinguished(model: Path, tmp_path: Path) -> None:
    assert (
        tuned.called("runs/cloze/best") == "cloze"
        and tuned.called("albertine-mini-en") == "albertine-mini-en"
    )
    untrained(model, tmp_path / "u")
    with pytest.raises(SystemExit, match="another model"):
        untrained(stand_in.put(tmp_path, "zh"), tmp_path / "u")
