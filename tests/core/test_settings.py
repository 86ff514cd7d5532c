"""Parsing of command line values, resolution of paths, and errors for unknown keys."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

import albertine.core.settings as shared
from albertine.core.settings import (
    Settings,
    commented_yaml,
    dump,
    load,
    read_yaml,
    resolve,
    with_absolute_paths,
)
from albertine.errors import SettingsError
from albertine.pretraining.settings import PretrainingSettings
from albertine.tasks.settings import FinetuneSettings

TUNE = ["name=a", "task.train=rows.csv", "encoder.folder=models/a"]
PRETRAIN = ["name=a", "corpus=corpora/a", "model.preset=albert-base-v2", "training.steps=10"]


def value(settings: Any, key: str) -> Any:
    for name in key.split("."):
        settings = getattr(settings, name)
    return settings


@pytest.mark.parametrize(
    ("key", "text", "meant"),
    [
        ("name", "2024", "2024"),
        ("name", "1e5", "1e5"),
        ("name", "no", "no"),
        ("name", "a: b # c", "a: b # c"),
        ("name", '"2024"', "2024"),
        ("name", '"', '"'),
        ("output", "2024", Path("2024")),
        ("task.separator", "|", "|"),
        ("task.separator", ",", ","),
        ("task.separator", '"', '"'),
        ("task.separator", '"\\t"', "\t"),
        ("task.separator", "[", "["),
        ("task.label", "no", "no"),
        ("task.label", "2", "2"),
        ("task.label", "null values", "null values"),
        ("task.pair", "2", "2"),
        ("task.pair", "null", None),
        ("task.pair", "", None),
        ("task.pair", '"null"', "null"),
        ("task.dev", "2024", Path("2024")),
        ("task.train", "2024", (Path("2024"),)),
        ("task.train", "a #1, b.csv", (Path("a #1, b.csv"),)),
        ("task.train", "[2024, no.csv]", (Path("2024"), Path("no.csv"))),
        ("encoder.unshare", "no", "no"),
        ("training.learning_rate", "1e-5", 1e-5),
        ("training.steps", "1_000", 1000),
        ("training.clip", "null", None),
        ("watching.report", "no", False),
    ],
)
def test_a_value_is_read_by_the_type_of_its_field(key: str, text: str, meant: object) -> None:
    kind = ["task.kind=multi"] if key == "task.separator" else []
    settings = load(FinetuneSettings, None, [*TUNE, *kind, f"{key}={text}"])
    assert value(settings, key) == meant and type(value(settings, key)) is type(meant)
    assert resolve(FinetuneSettings, yaml.safe_load(dump(settings))) == settings


def test_lists_and_parts_are_yaml() -> None:
    words = ["model.own=[norms, injection]", "stages=[{begin: 0, max_length: 8}, {begin: 0.5}]"]
    words += ["model.change={hidden_size: 64, norm: pre}", "model.change.num_hidden_layers=3"]
    settings = load(PretrainingSettings, None, [*PRETRAIN, *words])
    assert settings.model.own == ("norms", "injection")
    assert [stage.max_length for stage in settings.stages] == [8, None]
    change = settings.model.change
    assert (change.hidden_size, change.norm, change.num_hidden_layers) == (64, "pre", 3)
    for unreadable in ("stages=[{begin: 0", "model.change={", "task={"):
        with pytest.raises(SettingsError, match=f"`{unreadable.partition('=')[0]}`.* not readable"):
            load(PretrainingSettings, None, [*PRETRAIN, unreadable])


def test_a_settings_file_is_read_as_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: '\"a\"'\ntask: {train: x, pair: 'null'}\nencoder: {folder: m}\n")
    settings = load(FinetuneSettings, tmp_path / "a.yaml")
    assert settings.name == '"a"' and settings.task.pair == "null"


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("training: {steps: 3}\nname: a\n'training':\n  batch_size: 2\n", "training", 3),
        ("name: a\ntask:\n  train: x\n  test: y\n  train: z\n", "train", 5),
        ("stages:\n- {begin: 0,\n   begin: 0.5}\n", "begin", 3),
    ],
)
def test_a_key_that_is_written_twice_is_refused(text: str, key: str, line: int, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=rf"a\.yaml, line {line}: `{key}` is written twice"):
        read_yaml(file)


def test_merged_keys_are_not_written_twice(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "first: &first {steps: 1, warmup: 0}\n"
        "parts: [{inner: &inner {<<: *first, steps: 2}}]\n"
        "last: {<<: *inner, warmup: 3}\n"
    )
    tree = read_yaml(tmp_path / "a.yaml")
    assert tree["parts"] == [{"inner": {"steps": 2, "warmup": 0}}]
    assert tree["last"] == {"steps": 2, "warmup": 3}


def test_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.yaml").write_text(
        "name: a\noutput: ~/runs\ntask: {train: [~/a.csv, b.csv]}\nencoder: {folder: m}"
    )
    settings = load(FinetuneSettings, tmp_path / "a.yaml", ["task.dev=~/dev.csv", "encoder.folder=~"])
    assert settings.folder == tmp_path / "runs/a"
    assert settings.task.train == (tmp_path / "a.csv", Path("b.csv"))
    assert settings.task.dev == tmp_path / "dev.csv" and settings.encoder.folder == tmp_path


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["training.minute=1"], r"^command line: unknown setting `training\.minute`; did you mean"),
        (["training.batch_size=3.5", "name="], r"^command line: `name`: .*; `training\.batch_size`: [^;]*$"),
    ],
)
def test_a_wrong_setting_of_the_command_line_is_not_of_the_file(
    assignments: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text("corpus: c\nmodel: {preset: albert-base-v2}\n")
    with pytest.raises(SettingsError, match=message):
        load(PretrainingSettings, tmp_path / "a.yaml", ["name=a", "training.steps=10", *assignments])
    (tmp_path / "a.yaml").write_text("corpus: c\nmodel: {preset: albert-base-v2}\nsede: 3\n")
    with pytest.raises(
        SettingsError, match=r"a\.yaml: .* \(command line\); unknown setting `sede`; did[^;]*$"
    ):
        load(PretrainingSettings, tmp_path / "a.yaml", ["name=a", "training.steps=10", *assignments])


@pytest.mark.parametrize(
    ("assignment", "whole"),
    [("stages.0.max_length=16", "stages"), ("name.x=3", "name"), ("training.steps.x=3", "training.steps")],
)
def test_what_has_no_parts_is_given_whole(assignment: str, whole: str, tmp_path: Path) -> None:
    """Catches: the value of the file thrown away, and the file blamed for what stands there instead."""
    (tmp_path / "a.yaml").write_text(
        "name: a\ncorpus: c\nmodel: {preset: albert-base-v2}\ntraining: {steps: 10}\n"
        "stages: [{begin: 0, max_length: 8}]\n"
    )
    key = assignment.partition("=")[0]
    with pytest.raises(SettingsError) as caught:
        load(PretrainingSettings, tmp_path / "a.yaml", [assignment])
    assert str(caught.value) == (
        f"`{whole}` has no parts, so `{key}` cannot be set. Give it whole: {whole}=…"
    )
    (tmp_path / "a.yaml").write_text("corpus: c\nmodel: {preset: albert-base-v2}\n")
    others = [text for text in ("name=a", "training.steps=10") if not whole.startswith(text.split("=")[0])]
    with pytest.raises(SettingsError, match=f"^command line: `{whole}`: input should be"):
        load(PretrainingSettings, tmp_path / "a.yaml", [*others, assignment])


def test_leaving_a_list_out_explains_how_none_is_written(tmp_path: Path) -> None:
    """As the stages of a recipe, on the command line."""
    with pytest.raises(SettingsError, match=r"`stages`: input should be a list in square brackets, \[\] for"):
        load(PretrainingSettings, None, [*PRETRAIN, "stages=null"])
    assert load(PretrainingSettings, None, [*PRETRAIN, "stages=[]"]).stages == ()


@pytest.mark.parametrize(
    ("cls", "given", "message"),
    [
        (FinetuneSettings, [*TUNE, "encoder=albertine-mini-en"], "`encoder` has parts, such as `encoder.fol"),
        (
            PretrainingSettings,
            [*PRETRAIN, "model=albert-base-v2"],
            "`model` has parts, such as `model.preset`",
        ),
        (
            PretrainingSettings,
            [*PRETRAIN, "objective.masking=0.2"],
            "`objective.masking` has parts, such as `objective.masking.probability`",
        ),
    ],
)
def test_what_has_parts_is_not_given_whole(cls: type[Settings], given: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(cls, None, [text for text in given if not text.startswith(f"{given[-1].partition('=')[0]}.")])


def test_an_error_for_an_unknown_kind_lists_the_known_ones() -> None:
    message = (
        "no task.kind `ner`; known are single: one class; multi: any number of classes; .*; entities: ent"
    )
    with pytest.raises(SettingsError, match=message):
        load(FinetuneSettings, None, [*TUNE, "task.kind=ner"])


def test_an_error_shows_an_example_where_a_part_is_missing() -> None:
    for cls, given in ((FinetuneSettings, TUNE), (PretrainingSettings, PRETRAIN)):
        assert cls.example and isinstance(load(cls, None, cls.example.split()), cls)
        with pytest.raises(SettingsError, match=rf"`name`: field required\. For example: {cls.example}$"):
            load(cls, None, given[1:])
        with pytest.raises(SettingsError) as caught:
            load(cls, None, [*given, "nothing=1"])
        assert "For example" not in str(caught.value)


def test_paths_lead_to_the_same_files_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    of_the_hub = with_absolute_paths(load(FinetuneSettings, None, [*TUNE, "output=tuned/here"]))
    assert of_the_hub.encoder.folder == Path("models/a") and of_the_hub.output == tmp_path / "tuned/here"
    (tmp_path / "models" / "a").mkdir(parents=True)
    settings = with_absolute_paths(load(FinetuneSettings, None, [*TUNE, "task.dev=../dev.csv"]))
    assert settings.output == tmp_path / "runs" and settings.task.train == (tmp_path / "rows.csv",)
    assert settings.task.dev == tmp_path / "../dev.csv" and settings.task.test is None
    assert settings.encoder.folder == tmp_path / "models/a"
    name = "albertine-mini-en"
    released = load(PretrainingSettings, None, [*PRETRAIN, "model.preset=null", f"model.start_from={name}"])
    assert with_absolute_paths(released).model.start_from == Path(name), "the name of a released model"
    (tmp_path / name).mkdir()
    assert with_absolute_paths(released).model.start_from == tmp_path / name, (
        "a folder of that name goes first"
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("training.lr", "training.learning_rate"),
        ("lr", "training.learning_rate"),
        ("learning_rate", "training.learning_rate"),
        ("training.learning-rate", "training.learning_rate"),
        ("learning-rate", "training.learning_rate"),
        ("epochs", "training.epochs"),
        ("max_length", "task.max_length"),
        ("task.lr", "training.learning_rate"),
        ("training.batchsize", "training.batch_size"),
        ("batchsize", "training.batch_size"),
        ("trainning", "training"),
        ("task.folde", "task.folder"),
        ("taks", "task"),
    ],
)
def test_an_error_for_an_unknown_key_suggests_the_nearest(key: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf"unknown setting `{key}`; did you mean `{meant}`\?"):
        load(FinetuneSettings, None, [*TUNE, f"{key}=1"])


def test_an_error_without_a_near_key_lists_all() -> None:
    with pytest.raises(SettingsError, match="known keys here: encoder, name, output"):
        load(FinetuneSettings, None, [*TUNE, "zzzz=1"])


@pytest.mark.parametrize("key", ["task.train", "task.dev", "output"])
def test_a_path_that_is_not_utf8_is_refused(key: str) -> None:
    name = os.fsdecode(b"\xd6\xd0.csv")
    with pytest.raises(SettingsError) as caught:
        load(FinetuneSettings, None, [*TUNE, f"{key}={name}"])
    assert str(caught.value) == f"`{key}`: `\\xd6\\xd0.csv`: its name is not UTF-8; rename it"


def parts(models: tuple[Any, ...]) -> set[Any]:
    """Classes of settings, and those of every part in them."""
    below = [annotation for model in models for annotation in shared._fields((model,)).values()]
    return {*models, *(part for kind in below for part in parts(shared._nested(kind)))}


@pytest.mark.parametrize("cls", [PretrainingSettings, FinetuneSettings])
def test_every_key_is_described(cls: type[Settings]) -> None:
    for model in parts((cls,)):
        for name, annotation in shared._fields((model,)).items():
            nested = shared._nested(annotation)
            assert shared.description(model, name) or all(part.__doc__ for part in nested or [None]), (
                f"{model.__name__}.{name}"
            )


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (PretrainingSettings, [*PRETRAIN, "model.change.norm=pre", "stages=[{begin: 0, max_length: 8}]"]),
        (FinetuneSettings, [*TUNE, "task.kind=multi", 'task.separator="\\n"', f"task.text={'a # b ' * 20}"]),
        (FinetuneSettings, [*TUNE, "task.kind=similarity", "task.pair=b"]),
    ],
)
def test_explained_settings_are_the_same_yaml(cls: type[Settings], words: list[str]) -> None:
    settings = load(cls, None, words)
    text = commented_yaml(settings)
    assert resolve(cls, yaml.safe_load(dump(settings))) == settings
    assert resolve(cls, yaml.safe_load(text)) == settings
    lines = [line.strip() for line in text.splitlines()]
    assert all(before.startswith("# ") for before, line in pairwise(lines) if line in KEYS)
    assert KEYS & set(lines) and max(map(len, text.splitlines())) <= 110


KEYS = {"seed: 1", "warmup: 0.025", "warmup: 0.1", "norm: pre", "encoding: utf-8", "training:", "change:"}


MERGES_ONCE = Version(yaml.__version__) >= Version("6.0.4")
BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 7)
)


@pytest.mark.parametrize(
    "text",
    [
        *("name: 2026-11-31\n", f"seed: {'9' * 5000}\n", "seed: 0b_\n", "[" * 100_000, "a: &a {<<: *a}\n"),
        *("a: !!bool maybe\n", 'a: !!int ""\n', "a: !!timestamp x\n", 'a: "\\UFFFFFFFF"\n'),
        pytest.param(BOMB, marks=pytest.mark.skipif(MERGES_ONCE, reason="PyYAML merges a key once")),
    ],
    ids=lambda text: text[:12],
)
def test_yaml_that_cannot_be_read_is_one_message(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(SettingsError, match="not readable as YAML"):
        read_yaml(tmp_path / "a.yaml")


def test_a_name_that_no_folder_can_have_is_refused() -> None:
    """Catches: a traceback of the first access to the folder."""
    load(PretrainingSettings, None, [*PRETRAIN, f"name={'字' * 85}"])
    with pytest.raises(SettingsError, match=r"`name`: has 256 bytes; .* may have 255"):
        load(PretrainingSettings, None, [*PRETRAIN, f"name={'字' * 85}x"])


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16"])
def test_settings_that_are_not_utf8_are_refused(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: 评论\n", encoding=encoding)
    with pytest.raises(SettingsError, match=r"a\.yaml: is not UTF-8 text\. Save it as UTF-8"):
        read_yaml(tmp_path / "a.yaml")


def test_text_in_quotes_that_is_no_yaml_is_text() -> None:
    for word in ('"\\U00110000"', '"\\UFFFFFFFF"'):
        with pytest.raises(SettingsError, match="one line without slashes"):
            load(PretrainingSettings, None, [*PRETRAIN, f"name={word}"])


@pytest.mark.parametrize("number", [".inf", "1e400", "-.inf", ".nan"])
@pytest.mark.parametrize(
    ("cls", "given", "key"),
    [
        (PretrainingSettings, PRETRAIN, "training.clip"),
        (PretrainingSettings, PRETRAIN, "training.learning_rate"),
        (PretrainingSettings, PRETRAIN, "model.change.initializer_range"),
        (FinetuneSettings, TUNE, "training.clip"),
    ],
)
def test_a_number_without_end_is_no_setting(
    cls: type[Settings], given: list[str], key: str, number: str
) -> None:
    """JSON of a checkpoint has no infinity, so a run ended with a traceback at its first checkpoint."""
    with pytest.raises(SettingsError, match=rf"^`{key}`: input should be a finite number"):
        load(cls, None, [*given, f"{key}={number}"])


def test_a_recipe_of_the_package_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("recipes/albert-tiny-en.yaml", "albert-tiny-en.yaml", "albert-tiny-en"):
        assert load(PretrainingSettings, Path(path)).name == "albert-tiny-en"
    for path in ("recipes/finetune/mnli.yaml", "finetune/mnli", "mnli"):
        assert load(FinetuneSettings, Path(path), ["encoder.folder=models/a"]).name == "mnli"
    with pytest.raises(SettingsError, match=r"Did you mean `finetune/mnli`\?.*albertine info"):
        load(FinetuneSettings, Path("recipes/finetune/mnlli.yaml"))
    with pytest.raises(SettingsError, match="there is no such settings file"):
        load(PretrainingSettings, tmp_path / "albert-tiny-en.yaml")
    Path("mnli").write_text("name: own\nencoder: {folder: models/a}\ntask: {train: [a.csv]}\n")
    assert load(FinetuneSettings, Path("mnli")).name == "own"
