"""The way in from Python: rows in memory to a tuned model, and text to a pretrained one."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import albertine
from albertine.corpus import vocabulary
from albertine.errors import CheckpointError, CorpusError, DataError, SettingsError
from albertine.pretraining import probes, scores
from albertine.training.progress import Reporter
from tests.toy import MODEL

QUIET = Reporter(quiet=True)
FAST: dict[str, Any] = {"training": {"steps": 4, "threads": 1}, "watching": {"tensorboard": False}}
TASK = {"text": "review", "label": "verdict", "max_length": 16}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", ["list", "columns", "pandas", "polars", "arrow", "dataset"])
def test_rows_in_memory_learn_as_the_file_does(
    form: str, pretrained: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    train, dev = rows(tables["train"]), rows(tables["dev"])

    def made(given: list[dict[str, str]]) -> Any:
        columns = {name: [row[name] for row in given] for name in given[0]}
        if form == "list":
            return given
        if form == "columns":
            return columns
        if form == "dataset":
            return pytest.importorskip("datasets").Dataset.from_dict(columns)
        library = pytest.importorskip({"arrow": "pyarrow"}.get(form, form))
        return (library.table if form == "arrow" else library.DataFrame)(columns)

    common = {"output": tmp_path, "task": TASK, "reporter": QUIET, **FAST}
    of_files = albertine.finetune(pretrained, name="files", **tables, **common)
    of_rows = albertine.finetune(pretrained, name="rows", train=made(train), dev=made(dev), **common)
    assert of_rows.scores == of_files.scores
    ours, theirs = (r.model.joinpath("model.safetensors").read_bytes() for r in (of_rows, of_files))
    assert ours == theirs
    # The run can be scored again, and again on rows of its own.
    assert albertine.evaluate(of_rows.folder) == {
        "dev": {k: v for k, v in of_rows.scores.items() if k != "step"}
    }
    again = albertine.evaluate(of_rows.folder, file=made(dev))
    assert again["test"] == albertine.evaluate(of_files.folder, file=tables["dev"])["test"]
    predictor = albertine.Predictor(of_rows.model)
    answers = list(predictor.predict(made(dev), text="review"))
    lines = of_files.folder.joinpath("predictions-dev.jsonl").read_text().splitlines()
    assert [row["prediction"] for row in answers] == [json.loads(line)["prediction"] for line in lines]
    assert [row["points"] for row in answers] == [row["points"] for row in dev]


def test_a_second_call(pretrained: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    train = rows(tables["train"])
    common = {"output": tmp_path, "name": "a", "task": TASK, "reporter": QUIET, **FAST}
    first = albertine.finetune(pretrained, train=train, dev=train[:20], **common)
    files = {p: p.stat().st_mtime_ns for p in first.folder.rglob("*.safetensors")}
    assert albertine.finetune(pretrained, train=train, dev=train[:20], **common).scores == first.scores
    assert {p: p.stat().st_mtime_ns for p in first.folder.rglob("*.safetensors")} == files
    with pytest.raises(CheckpointError):
        albertine.finetune(pretrained, train=train[:300], dev=train[:20], **common)
    assert albertine.evaluate(first.folder)["dev"]["accuracy"] == first.scores["accuracy"]
    with pytest.raises(SettingsError, match="there is no device `meta` here"):
        albertine.Predictor(first.folder, device="meta")
    with pytest.raises(SettingsError, match="there is no device `nonsense` here"):
        albertine.evaluate(first.folder, device="nonsense")
    with pytest.raises(SettingsError, match="there is no device `None` here"):
        albertine.Predictor(first.folder, device=None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="is no name of a file"):
        albertine.evaluate(first.folder, file="a\0b")


def test_a_recipe_names_the_run(pretrained: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"name: named\noutput: {tmp_path / 'by the recipe'}\ntask: {{text: review}}\n")
    common = {"train": rows(tables["train"]), "task": {"label": "verdict"}, "reporter": QUIET, **FAST}
    found = albertine.finetune(pretrained, config=recipe, **common)
    assert found.folder == tmp_path / "by the recipe" / "named"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by the recipe", "recipe.yaml"]
    other = albertine.finetune(pretrained, config=recipe, name="other", output=tmp_path, **common)
    assert other.folder == tmp_path / "other"


def test_what_becomes_of_the_encoder(pretrained: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    """`encoder_options` is the part `encoder` of a recipe, over the one that a recipe has."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("encoder: {folder: elsewhere, unshare: all}\n")
    common = {"output": tmp_path, "task": TASK, "reporter": QUIET, "config": recipe, **FAST}
    options = {"num_hidden_layers": 1, "dropout": 0.1}
    found = albertine.finetune(pretrained, **tables, encoder_options=options, **common)
    config = albertine.load(found.model).config
    assert (config.num_hidden_layers, config.hidden_dropout_prob) == (1, 0.1)
    assert "unshare: all" in (found.folder / "settings.yaml").read_text()


def test_parts_that_are_none(pretrained: Path, tables: dict[str, Path]) -> None:
    for part in ("encoder_options", "task"):
        with pytest.raises(SettingsError, match=f"{part} is of the type list. Give a dictionary, such as"):
            albertine.finetune(pretrained, **{part: ["x"]}, train=tables["train"])
    with pytest.raises(SettingsError, match="what becomes of it stands in encoder_options"):
        albertine.finetune(encoder={"folder": pretrained}, train=tables["train"], task=TASK)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"encoder\.unshared.*unshare"):
        albertine.finetune(pretrained, **tables, task=TASK, encoder_options={"unshared": "all"})


def test_what_cannot_be_learned_from(pretrained: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"review": ["a man", "a house"], "verdict": ["x", "y"]})
    for train, task, message in (
        (frame.drop(columns="verdict"), TASK, "has no column `verdict`"),
        (frame.assign(verdict=["x", None]), TASK, "verdict"),
        ([{"review": {1}, "verdict": "x"}], TASK, "review|cannot be kept"),
        ([], TASK, "holds no"),
        (iter([1]), TASK, "not a mapping"),
    ):
        with pytest.raises(DataError, match=message):
            albertine.finetune(pretrained, train=train, task=task, output=tmp_path, reporter=QUIET, **FAST)
    with pytest.raises(SettingsError, match=r"training\.step"):
        albertine.finetune(pretrained, train=frame, task=TASK, output=tmp_path, training={"step": 1})


def test_text_to_a_pretrained_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "a text.jsonl"
    words = "the old man said that he was never in the house of time and night"
    sentences = [" ".join(words.split()[i % 7 :]).capitalize() + "." for i in range(60)]
    documents = [{"text": " ".join(sentences[i : i + 9])} for i in range(50)]
    text.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    with pytest.raises(SettingsError, match=r"`fr` is no language.*en, zh or auto"):
        albertine.prepare(text, tmp_path / "corpus", vocab_size=36, language="fr")
    for wrong, message in (
        ({"worker": 1}, "there is no option `worker`. Did you mean `workers`"),
        ({"vocabsize": 36}, "no option `vocabsize`. Did you mean `vocab_size`"),
        ({"x": 1}, r"no option `x`. Known are text, .*kind.*workers"),
        ({"kind": "bpe"}, "no kind of vocabulary `bpe`. Known are sentencepiece, wordpiece, xlnet"),
        ({"kind": "wordpiece", "tokenizer": "albertine-mini-en"}, "a given tokenizer is not trained"),
        ({"vocab_size": "60"}, "vocab_size is a whole number from 1, not '60'"),
        ({"tokenizer": "albertine-mini-en", "workers": "2"}, "workers is a whole number from 1, not '2'"),
        ({"tokenizer": "albertine-mini-en", "seed": None}, "seed is a whole number from 0, not None"),
        ({"tokenizer": "albertine-mini-en", "held_out": "0.1"}, "held_out is a share .*, not '0.1'"),
    ):
        with monkeypatch.context() as patched, pytest.raises(SettingsError, match=message):
            patched.setattr(vocabulary, "TRAINERS", dict.fromkeys(vocabulary.TRAINERS, pytest.fail))
            albertine.prepare(text, tmp_path / "corpus", **wrong)
    pieces = albertine.prepare(text, tmp_path / "w", kind="wordpiece", vocab_size=60, workers=1)
    assert pieces.tokenizer["kind"] == "wordpiece"
    prepared = albertine.prepare(text, tmp_path / "corpus", vocab_size=36, deduplicate=False, workers=1)
    assert prepared.documents == 50
    shape = {"model": {"preset": "albert-tiny-zh", "change": MODEL}, "objective": {"max_length": 32}}
    run = {"output": tmp_path, "corpus": tmp_path / "corpus", **shape, "reporter": QUIET}
    training = {"batch_size": 4, "precision": "float32"}
    result = albertine.pretrain(name="mine", training={"steps": 2, **training}, **run)
    branch = albertine.pretrain(
        name="longer",
        training={"steps": 3, **training},
        branch_from=result.folder / "checkpoints" / "step-2",
        **run,
    )
    assert (branch.outcome.step, branch.outcome.updates) == (3, 1)
    counted, count = list[object](), scores.count_tokens
    for module in (scores, probes):  # whichever of them counts
        monkeypatch.setattr(module, "count_tokens", lambda *a: counted.append(a) or count(*a), raising=False)
    scored = albertine.score(result.folder / "final", tmp_path / "corpus")
    assert len(counted) == 1, "the whole corpus is read for it"
    numpy: dict[str, Any] = {"workers": np.int64(1), "seed": np.int64(1)}
    again = albertine.prepare(text, tmp_path / "again", tokenizer=result.folder, deduplicate=False, **numpy)
    assert again.tokenizer == prepared.tokenizer
    assert set(scored) == {"mlm"} and 0 < scored["mlm"]["loss"] < 10
    for none in (0, -1, "8"):
        with pytest.raises(SettingsError, match=f"sequences is a whole number from 1, not {none!r}"):
            albertine.score(result.folder, tmp_path / "corpus", sequences=none)  # type: ignore[arg-type]
    for wrong, expected in (
        ({"max_length": 2}, "max_length is a whole number from 8, not 2"),
        ({"max_length": 1}, "max_length is a whole number from 8, not 1"),
        ({"memory": -1}, "memory is a whole number from 0"),
        ({"memory": 4}, "memory, reach, clamp, pairs and sentence_task are of a corpus"),
        ({"pairs": False}, "memory, reach, clamp, pairs and sentence_task are of a corpus"),
    ):
        with pytest.raises(SettingsError, match=expected):
            albertine.score(result.folder, texts=text, **wrong)
    (own,) = albertine.score(result.folder, texts=text).values()
    assert own["spans"]["characters"] > 0 and "loss" not in own


def test_importing_is_cheap() -> None:
    script = "import sys, albertine; albertine.Predictor; print('torch' in sys.modules)"
    names = "import sys, albertine; print('torch' in sys.modules, sorted(albertine.__all__)[:2])"
    out = [
        subprocess.run([sys.executable, "-c", s], capture_output=True, text=True, check=True).stdout
        for s in (names, script)
    ]
    assert out == ["False ['Predictor', 'analyze']\n", "False\n"]
    with pytest.raises(AttributeError, match="no attribute `finetuned`"):
        albertine.finetuned  # type: ignore[attr-defined]  # noqa: B018


def test_a_moved_run_has_its_rows_with_it(pretrained: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    train = rows(tables["train"])
    how = {"output": tmp_path / "here", "name": "a", "task": TASK, "reporter": QUIET, **FAST}
    expected = albertine.evaluate(albertine.finetune(pretrained, train=train, dev=train[:20], **how).folder)
    (tmp_path / "here").rename(tmp_path / "there")
    assert albertine.evaluate(tmp_path / "there" / "a") == expected


def test_a_moved_run_is_judged_by_the_same_share_of_its_rows(
    pretrained: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    task = {**TASK, "dev_share": 0.2}
    how = {"output": tmp_path / "here", "name": "a", "task": task, "reporter": QUIET, **FAST}
    expected = albertine.evaluate(albertine.finetune(pretrained, train=rows(tables["train"]), **how).folder)
    (tmp_path / "here").rename(tmp_path / "there")
    assert expected["dev"] and albertine.evaluate(tmp_path / "there" / "a") == expected


def test_home_is_found_by_every_call(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a folder named `~`."""
    (tmp_path / "work").mkdir()
    shutil.copytree(pretrained, tmp_path / "m")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    albertine.save(albertine.load("~/m"), albertine.load_tokenizer("~/m"), "~/copy")
    assert (tmp_path / "copy" / "config.json").is_file() and not Path("~").exists()
    (tmp_path / "text.txt").write_text("A man came. He was old.\n\n" * 40)
    albertine.prepare("~/text.txt", "~/corpus", tokenizer="~/m")
    assert (tmp_path / "corpus" / "manifest.json").is_file() and not any(Path().iterdir())
    rows = [{"review": f"{word} man", "verdict": word} for word in ("good", "bad")]
    how: dict[str, Any] = {"train": rows, "task": TASK, "output": "~/runs", "reporter": QUIET, **FAST}
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/gone: there is no such checkpoint"):
        albertine.finetune("~/m", resume="~/gone", **how)
    albertine.finetune("~/m", **how)
    (tmp_path / "rows.csv").write_text("review\na good man\n")
    (answer,) = albertine.Predictor("~/runs/finetune").predict("~/rows.csv", text="review")
    assert answer["prediction"] in ("good", "bad")


def test_rows_that_are_given_twice_are_refused(tables: dict[str, Path], tmp_path: Path) -> None:
    task = {**TASK, "train": tables["dev"]}
    with pytest.raises(SettingsError, match=r"task is of the type int\. Give a dictionary"):
        albertine.finetune("albertine-mini-en", output=tmp_path / "r", train=rows(tables["train"]), task=5)
    with pytest.raises(SettingsError, match="`train` stands in task too"):
        albertine.finetune(
            "albertine-mini-en", output=tmp_path / "runs", train=rows(tables["train"]), task=task
        )
    assert not (tmp_path / "runs").exists()


def test_what_is_no_path_is_refused_by_name(
    pretrained: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    """Catches: a traceback of `os.path` where a result, a model or nothing stands in the place of a
    folder."""
    how: dict[str, Any] = {**tables, "output": tmp_path, "task": TASK, "reporter": QUIET, **FAST}
    result, model = albertine.finetune(pretrained, **how), albertine.load(pretrained)
    corpus, frame = tmp_path / "corpus", pytest.importorskip("pandas").DataFrame({"text": ["a man"]})
    calls: tuple[tuple[Any, Any, str], ...] = (
        (albertine.Predictor, result, "a FinetuneResult is no name .* the `folder` of its result"),
        (albertine.evaluate, result, "a FinetuneResult is no name"),
        (albertine.load, model, "a Model is no name"),
        (albertine.load_tokenizer, None, "a NoneType is no name"),
        (albertine.pretrain, {"name": "x"}, "a dict is no name"),
        (lambda teacher: albertine.distill(teacher, corpus), model, "a Model is no name"),
        (lambda text: albertine.prepare(text, corpus), None, "a NoneType names no files"),
        (lambda text: albertine.prepare(text, corpus), {"text": ["a"]}, "a dict names no files"),
        (lambda text: albertine.prepare(text, corpus), frame, "a DataFrame names no files of text"),
        (lambda way: albertine.finetune(pretrained, name="b", resume=way, **how), True, "a bool is no name"),
    )
    for call, given, message in calls:
        with pytest.raises(SettingsError, match=message):
            call(given)


def test_a_result_is_found_from_another_working_folder(
    pretrained: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = albertine.finetune(pretrained, **tables, output="runs", task=TASK, reporter=QUIET, **FAST)
    expected = albertine.evaluate(result.folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert albertine.evaluate(result.folder) == expected
    assert albertine.Predictor(result.model).classify("a man")


def test_a_type_checker_reports_a_missing_name(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    program = tmp_path / "program.py"
    program.write_text("import albertine\nalbertine.Predictor\nalbertine.Predicter\n")
    alone = (
        "--config-file=",
        "--follow-imports=skip",
        "--ignore-missing-imports",
        "--cache-dir",
        str(tmp_path / "cache"),
    )
    output, _, status = api.run([*alone, albertine.__file__, str(program)])
    assert status == 1 and "program.py:3: error" in output and output.count("error: ") == 1, output


def test_a_corpus_of_texts_in_memory(tmp_path: Path) -> None:
    """Catches: one that depends on when or where it is made; one document of all texts; other texts of the
    same size taken for the same."""
    words = [
        "the",
        "old",
        "man",
        "said",
        "that",
        "he",
        "was",
        "never",
        "in",
        "the",
        "house",
        "of",
        "time",
        "and",
        "night",
    ]
    texts = [" ".join(words[i % 5 :] * 4).capitalize() + ".\n\nAnd so “on”." for i in range(40)]
    common: dict[str, Any] = {"vocab_size": 40, "min_characters": 1, "held_out": 0.2, "deduplicate": False}
    found = albertine.prepare(texts=texts, output=tmp_path / "a", **common)
    assert (found.documents_read, found.sources[0]["path"]) == (40, "texts in memory")
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    of_file = albertine.prepare(lines, tmp_path / "b", **common)
    assert (of_file.tokens, of_file.tokenizer) == (found.tokens, found.tokenizer)
    albertine.prepare(texts=np.array(texts), output=tmp_path / "again", **common)
    here, there = (sorted((tmp_path / name).rglob("*.npy")) for name in ("a", "again"))
    assert [f.read_bytes() for f in here] == [f.read_bytes() for f in there]
    manifests = [(tmp_path / name / "manifest.json").read_bytes() for name in ("a", "again")]
    assert manifests[0] == manifests[1]
    assert albertine.prepare(texts=iter(texts), output=tmp_path / "a", **common) == found
    with pytest.raises(CorpusError, match="was prepared with other settings"):
        albertine.prepare(texts=[*texts[1:], texts[0]], output=tmp_path / "a", **common)
    for wrong, kind, message in (
        ({"texts": []}, DataError, "no text in them"),
        ({"texts": ["a", 3]}, DataError, r"texts\[1\]: is .*not text"),
        ({"texts": texts, "encoding": "gbk"}, SettingsError, "encoding is for files"),
        ({"texts": texts, "text": lines}, SettingsError, "takes files as text, or texts in memory as texts"),
    ):
        with pytest.raises(kind, match=message):
            albertine.prepare(output=tmp_path / "c", **wrong)
    with pytest.raises(SettingsError, match="needs an output"):
        albertine.prepare(lines)


def test_a_text_in_place_of_a_path_is_reported(pretrained: Path, tmp_path: Path) -> None:
    """Catches: OSError: File name too long."""
    texts = ("The old man said that a house was good. " * 30, "A line.\nAnother line.")
    row, out = [{"text": "a", "label": "b"}], tmp_path / "out"
    calls: tuple[tuple[Any, str], ...] = (
        (lambda text: albertine.prepare(text, out), r"made by albertine.prepare\(texts="),
        (lambda text: albertine.prepare([text], out), r"made by albertine.prepare\(texts="),
        (albertine.load, "Name a model folder"),
        (albertine.load_task, "Name a model folder"),
        (albertine.load_tokenizer, "Name a model folder"),
        (albertine.Predictor, "Name a model folder"),
        (lambda text: albertine.finetune(pretrained, train=text, output=out), "or rows"),
        (lambda text: albertine.finetune(pretrained, train=[text, text], output=out), "or rows"),
        (lambda text: albertine.finetune(text, train=row, output=out), "Name a model folder"),
        (lambda text: albertine.evaluate(pretrained, file=text), "or rows"),
        (lambda text: albertine.score(pretrained, texts=text), "is wanted"),
        (albertine.pretrain, "is wanted"),
        (lambda text: albertine.prepare(tmp_path, text), "is wanted"),
    )
    for call, message in calls:
        for text in texts:
            with pytest.raises(SettingsError, match=rf"is a text of [\d,]+ characters.*{message}"):
                call(text)
    (tmp_path / "two\nlines").write_text("The old man said that a house was good.", encoding="utf-8")
    assert albertine.prepare(
        tmp_path / "two\nlines", out, tokenizer=pretrained, min_characters=1, held_out=0
    ).documents_read
