"""Every verb that takes a model folder takes a released name; `predict` needs none."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

import albertine
from albertine.cli.inputs import model_and_texts
from albertine.cli.predict import in_words
from albertine.core import released
from albertine.core.settings import dump, resolve
from albertine.errors import ModelError
from albertine.inference.fill_mask import Guess
from albertine.interop.model_names import model_folder
from albertine.pretraining.scores import settings_of_run
from albertine.pretraining.settings import PretrainingSettings
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import open_run
from albertine.tasks.run_record import pretraining
from tests import stand_in
from tests.cli.conftest import Command
from tests.evaluation.test_suites import few_pairs as few_pairs

EN, ZH = released.DEFAULT_MODELS["en"], released.DEFAULT_MODELS["zh"]
ENGLISH, CHINESE = "the old [MASK] sat on the mat .", "北京是中[MASK]的首都。"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    for language in ("en", "zh"):
        stand_in.put(folder, language)
    return folder


@pytest.fixture(autouse=True)
def installed(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(released, "FOLDER", package)
    monkeypatch.chdir(tmp_path)
    return package


def masks(line: str) -> list[list[str]]:
    return [[guess["token"] for guess in mask] for mask in json.loads(line)["masks"]]


def guessed(model: str, text: str) -> list[list[str]]:
    return [[guess.token for guess in mask] for mask in Predictor(model).fill_mask(text)]


def test_a_guess_that_is_the_mark_of_a_word_alone_is_shown() -> None:
    guesses = [Guess("▁the", 5, 0.5), Guess("▁", 7, 0.25), Guess("s", 9, 0.125)]
    assert in_words(guesses) == "the 50 % · ▁ 25 % · s 12 %"


def test_fill_mask_by_name(albertine: Command) -> None:
    outcome = albertine("predict", "fill-mask", ZH, CHINESE, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert masks(outcome.out) == guessed(ZH, CHINESE)


def test_without_a_model_each_text_goes_to_its_language(albertine: Command) -> None:
    outcome = albertine("predict", "fill-mask", ENGLISH, CHINESE, ENGLISH, "--json")
    assert outcome.code == 0
    one, two, three = outcome.out.splitlines()
    assert masks(one) == masks(three) == guessed(EN, ENGLISH) and masks(two) == guessed(ZH, CHINESE)
    assert outcome.err.splitlines() == [f"using model {name}, since none is named" for name in (EN, ZH)]


def test_without_a_model_lines_of_stdin(albertine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(CHINESE + "\n"))
    outcome = albertine("predict", "fill-mask", "--json")
    assert outcome.code == 0 and masks(outcome.out) == guessed(ZH, CHINESE)
    monkeypatch.setattr("sys.stdin", io.StringIO(CHINESE + "\n"))
    assert masks(albertine("predict", "fill-mask", EN, "--json").out) == guessed(EN, CHINESE)


def test_similar_texts_without_a_model(albertine: Command) -> None:
    pair = ("the cat sat on a mat", "a cat on the mat")
    outcome = albertine("predict", "similarity", *pair, "--json")
    assert EN in outcome.err
    there = float(Predictor(EN).similarity([pair[0]], [pair[1]])[0, 0])
    assert json.loads(outcome.out)["similarity"] == pytest.approx(there, abs=1e-6)
    assert ZH in albertine("predict", "order", "北京", "首都").err
    assert albertine("predict", "similarity", EN, *pair).err == ""


def test_vectors_are_of_one_model(albertine: Command) -> None:
    outcome = albertine("predict", "embed", "猫坐在垫上", "the cat")
    vectors = [json.loads(line)["vector"] for line in outcome.out.splitlines()]
    assert outcome.err == f"using model {ZH}, since none is named\n"
    there = Predictor(ZH).embed(["猫坐在垫上", "the cat"])
    np.testing.assert_array_equal(np.array(vectors, dtype=np.float32), there)


@pytest.mark.usefixtures("few_pairs")
def test_judged_by_name(albertine: Command, installed: Path, tmp_path: Path) -> None:
    from tests.evaluation.test_suites import write

    text = tmp_path / "text.txt"
    text.write_text("the old man said he was a good cat on the mat .\n" * 20)
    for verb, *more in (
        ("suite", "blimp", "--data", write(tmp_path, "blimp", 1)),
        ("score", "--texts", text),
    ):
        by_name, by_path = (albertine(verb, *more, m, "--json") for m in (EN, installed / EN))
        assert by_name.code == by_path.code == 0, by_name.err
        printed = [json.loads(outcome.out) for outcome in (by_name, by_path)]
        if verb == "suite":
            assert [one.pop("model") for one in printed] == [EN, str(installed / EN)]
        assert printed[0] == printed[1]


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["a text"], None),
        (["猫坐"], None),
        (["word", "another"], "word"),
        (["runs/my model/best", "a text"], "runs/my model/best"),
        (["a folder", "a text"], "a folder"),
        ([EN], EN),
        ([], None),
    ],
)
def test_what_is_a_model_among_words(words: list[str], model: str | None) -> None:
    Path("a folder").mkdir()
    assert model_and_texts(words) == (model, words[model is not None :])
    assert model_and_texts([ENGLISH * 50], masked=True) == (None, [ENGLISH * 50])


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "fill-mask", "albertine-mini-eng"),
        ("predict", "fill-mask", "albertine-mini-eng", ENGLISH),
        ("predict", "embed", "albertine-mini-eng"),
        ("predict", "embed", "albertine-mini-eng", "a text"),
        ("predict", "order", "albertine-mini-eng", "a", "b"),
        ("predict", "classify", "albertine-mini-eng", "a text"),
        ("convert", "albertine-mini-eng", "there"),
        ("score", "albertine-mini-eng", "--texts", "."),
        ("score", "albertine-mini-eng", "."),
        ("score", "albertine-mini-eng"),
        ("suite", "blimp", "albertine-mini-eng", "--data", "."),
        ("evaluate", "albertine-mini-eng"),
        ("info", "albertine-mini-eng"),
        ("tokenizer", "encode", "albertine-mini-eng", "a text"),
        ("finetune", "name=x", "task.train=t.csv", "encoder.folder=albertine-mini-eng"),
    ],
)
def test_an_unknown_name_is_one_message(albertine: Command, command: tuple[str, ...]) -> None:
    outcome = albertine(*command)
    assert outcome.code == 2
    assert f"Did you mean `{EN}`? Released models: {EN}, {ZH}" in outcome.err


def test_texts_longer_than_a_released_model_reads_are_reported(albertine: Command) -> None:
    long = "北京是[MASK]国的首都。" + "很好。" * 300 + "[MASK]"
    for words in (["fill-mask", ZH, long], ["similarity", ZH, long, "很好"], ["order", ZH, long, "很好"]):
        outcome = albertine("predict", *words)
        assert outcome.code == 0 and "1 texts were too long and lost their end" in outcome.err, words
        short = (word.replace("很好。" * 300, "") for word in words)
        assert "too long" not in albertine("predict", *short).err, words


def test_a_missing_text_is_reported(albertine: Command) -> None:
    """A model is not taken for the first of two texts, and a text without a mask not for a model."""
    for model in (EN, "runs/typo", "albert/albert-base-v2"):
        for verb in ("similarity", "order"):
            outcome = albertine("predict", verb, model, "a cat sat")
            assert outcome.code == 2 and f"`{model}` is a model or a path" in outcome.err
    outcome = albertine("predict", "fill-mask", "no mask here")
    assert outcome.code == 2 and "there is no [MASK] in it" in outcome.err


@pytest.mark.parametrize(
    "command",
    [
        ("fill-mask", "{}"),
        ("fill-mask", EN, "{}"),
        ("embed", "{}"),
        ("embed", ZH, "a", "{}"),
        ("similarity", ZH, "a", "{}"),
        ("order", "{}", "a"),
        ("classify", EN, "{}"),
        ("choose", EN, "{}", "a", "b"),
        ("choose", EN, "a", "{}", "b"),
        ("choose", EN, "a", "c", "b", "--question", "{}"),
        ("tag", EN, "a", "{}"),
        ("answer", EN, "{}", "a"),
        ("read", EN, "a", "{}"),
    ],
)
def test_a_text_in_another_encoding_is_refused(albertine: Command, command: tuple[str, ...]) -> None:
    """Python would hand over lone surrogates, which are in no vocabulary."""
    given = os.fsdecode(CHINESE.encode("gb18030"))
    outcome = albertine("predict", *(word.format(given) for word in command))
    assert outcome.code == 2 and "is not UTF-8 text. Convert the script" in outcome.err
    assert "[MASK]" in outcome.err and "iconv -f gb18030 -t utf-8" in outcome.err


@pytest.mark.parametrize(
    "command",
    [
        ("fill-mask", EN, "{}"),
        ("embed", ZH, "a b", "{}"),
        ("similarity", EN, "a", "{}"),
        ("order", EN, "{}", "a"),
        ("classify", EN, "{}"),
        ("answer", EN, "a", "{}"),
        ("continue", EN, "{}"),
    ],
)
def test_the_name_of_a_file_is_not_looked_up(albertine: Command, command: tuple[str, ...]) -> None:
    """It means the content of the file, and would be answered as a text of a few letters."""
    Path("new mails.csv").write_text("text\nMy [MASK] is wrong.\n")
    outcome = albertine("predict", *(word.format("new mails.csv") for word in command))
    assert outcome.code == 2 and outcome.out == ""
    assert "`new mails.csv` is a file. For its lines use" in " ".join(outcome.err.split())


def test_a_word_that_is_also_a_folder_or_a_file_without_an_ending_is_a_text(albertine: Command) -> None:
    Path("bank").mkdir()
    Path("money").write_text("")
    outcome = albertine("predict", "similarity", EN, "bank", "money")
    assert outcome.code == 0 and -1 <= float(outcome.out) <= 1


def test_what_is_odd_on_the_command_line(albertine: Command) -> None:
    """UTF-8 where the locale is not; a folder with a name that is no UTF-8; an empty word."""
    undecoded = CHINESE.encode().decode("ascii", "surrogateescape")
    outcome = albertine("predict", "fill-mask", undecoded)
    assert outcome.code == 2 and "is UTF-8, and the locale is not. Write LC_ALL=C.UTF-8" in outcome.err
    outcome = albertine("predict", "classify", EN, os.fsdecode("好".encode("gb18030")))
    assert outcome.code == 2 and "iconv -f gb18030" in outcome.err
    Path(folder := os.fsdecode("模型".encode("gb18030"))).mkdir()
    assert model_and_texts([folder, CHINESE], masked=True) == (folder, [CHINESE])
    outcome = albertine("predict", "fill-mask", "", CHINESE)
    assert outcome.code == 2 and "the first word is empty: give a model, or a text" in outcome.err


def test_without_released_models_the_error_suggests_a_folder(
    albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(released, "FOLDER", tmp_path)
    for command in (["fill-mask", CHINESE], ["embed", CHINESE], ["similarity", CHINESE, CHINESE]):
        outcome = albertine("predict", *command)
        assert outcome.code == 2 and "for Chinese is not installed. Name a model folder" in outcome.err
    assert albertine("predict", "similarity", "alone").code == 2
    (tmp_path / "m").mkdir()
    assert albertine("predict", "similarity", "m", "alone").code == 2  # a model, and one text


def test_the_other_verbs(albertine: Command, tmp_path: Path) -> None:
    shown = json.loads(albertine("info", EN, "--json").out)
    assert shown["name"] == EN and shown["encoder"]["positions"] == "rotary"
    assert albertine("convert", ZH, "copy").code == 0
    assert guessed("copy", CHINESE) == guessed(ZH, CHINESE)
    assert albertine("convert", ZH, ZH).code == 0 and Path(ZH, "config.json").is_file()
    assert albertine("doctor", EN).code == 0
    assert "首" in albertine("tokenizer", "encode", ZH, "首都").out
    rows = [f"the {word} cat,{word}" for word in ("good", "old") * 8]
    Path("train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    settings = ["name=x", "task.train=train.csv", f"encoder.folder={EN}", "training.steps=2"]
    more = ["task.dev=train.csv", "task.max_length=16", "watching.report=false", "watching.tensorboard=false"]
    tuned = albertine("finetune", *settings, *more)
    assert tuned.code == 0, tuned.err
    record = json.loads(Path("runs/x/result.json").read_text())
    assert record["encoder"] == EN  # and no path of this machine
    assert albertine("predict", "classify", "runs/x/best", "the old cat").code == 0
    again = albertine("finetune", *settings, *more)
    assert again.code == 0 and json.loads(Path("runs/x/result.json").read_text()) == record


def test_a_tokenizer_by_name_prepares_a_corpus_for_pretraining(albertine: Command) -> None:
    Path("text").mkdir()
    for number in range(20):
        lines = [f"the old man said he was a good cat {number}.", "the cat sat on a mat."] * 10
        Path("text", f"{number}.txt").write_text("\n".join(lines))
    assert albertine("prepare", "text", "-o", "corpus", "--tokenizer", EN, "--held-out", 0.3).code == 0
    settings = [
        "name=more",
        "corpus=corpus",
        f"model.start_from={EN}",
        "objective.max_length=32",
        "training.steps=2",
        "training.batch_size=4",
        "training.workers=0",
        "watching.evaluate_sequences=8",
        "watching.tensorboard=false",
    ]
    outcome = albertine("pretrain", *settings)
    assert outcome.code == 0, outcome.err
    judged = albertine("score", EN, "corpus", "--json")
    assert judged.code == 0 and json.loads(judged.out)[0]["task"] == "mlm"
    wrong = albertine("pretrain", *settings, "model.start_from=albertine-mini-eng", "name=other")
    assert wrong.code == 2 and f"Did you mean `{EN}`?" in wrong.err


def test_a_released_model_is_known_by_the_settings_it_lies_with(package: Path) -> None:
    run = resolve(
        PretrainingSettings,
        {
            "name": "mini",
            "corpus": "text",
            "model": {"preset": "albert-tiny-zh"},
            "objective": {"max_length": 40},
            "training": {"steps": 5},
        },
    )
    Path("settings.yaml").write_text("name: somebody else's, in the working directory\n")
    assert settings_of_run(model_folder(EN)) is None
    (package / EN / "settings.yaml").write_text(dump(run))
    try:
        found = settings_of_run(model_folder(EN))
        assert found is not None and found.objective.max_length == 40
        assert pretraining(Path(EN)) == "corpus text, objective sop, 5 steps"
        with pytest.raises(ModelError, match="is no run of a task"):
            open_run(model_folder(EN))  # a model, though settings.yaml is in it
    finally:
        (package / EN / "settings.yaml").unlink()


def test_loading_by_name_is_the_front_door() -> None:
    assert albertine.load(EN).config.positions == "rotary"


@pytest.mark.parametrize("verb", [("tokenizer", "encode"), ("predict", "continue"), ("analyze", "depth")])
def test_other_verbs_refuse_it_too(albertine: Command, verb: tuple[str, ...]) -> None:
    outcome = albertine(*verb, ZH, os.fsdecode(CHINESE.encode("gb18030")))
    assert outcome.code == 2 and "is not UTF-8 text" in outcome.err
