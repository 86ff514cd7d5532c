"""CSL, CLUEWSC and FewCLUE: official counts, the tar and the unpacked files, how a row is laid out."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from albertine.errors import DataError, SettingsError
from albertine.tasks.dataset_files import check_known
from albertine.tasks.dataset_registry import known, named
from albertine.tasks.datasets import classes, multiple_choice
from albertine.tasks.datasets.classes import class_names, keywords, label_names, marked
from albertine.tasks.finetune import finetune
from albertine.tasks.readers.table import Row
from albertine.tasks.task_data import read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

# The union of the five splits, and one of them: train, dev; the public test file (FewCLUE, table 1).
OFFICIAL = {
    "tnews": ((1185, 1098), (240, 240), 2010),
    "csl": ((160, 160), (32, 32), 2838),
    "csldcp": ((2036, 2068), (536, 536), 1784),
    "cluewsc": ((160, 159), (32, 32), 976),
    "ocnli": ((160, 160), (32, 32), 2520),
    "bustm": ((160, 160), (32, 32), 1772),
    "eprstmt": ((160, 160), (32, 32), 610),
    "iflytek": ((3024, 1373), (928, 690), 1749),
    "chid": ((202, 202), (42, 42), 2002),
}


@pytest.fixture(scope="session")
def unpacked(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fewclue")
    shutil.unpack_archive(shared_data / "fewclue" / "fewclue.tar.xz", folder)
    return folder


@pytest.mark.sample(3)
@pytest.mark.parametrize("task", OFFICIAL)
def test_real_files_have_their_official_counts(unpacked: Path, task: str) -> None:
    union, one, test = OFFICIAL[task]
    sizes = {"": union} | {f"-{k}": one for k in range(5)}
    for suffix, (train, dev) in sizes.items():
        name = f"fewclue-{task}{suffix}"
        for split, count in (("train", train), ("dev", dev), ("test", test)):
            if task == "chid":
                choices = list(multiple_choice.read(named(name), unpacked, split))
                assert len(choices) == count
                assert {len(c.options) for c in choices} == {7}
                assert all(c.label is not None and "#idiom#" in c.passage for c in choices)
                continue
            found = list(classes.read(named(name), unpacked, split))
            assert len(found) == count, (name, split)
            assert all(e.text.strip() and e.label is not None for e in found)
            if split == "train":
                labels = label_names(named(name), found)
            check_known("class", {split: found}, class_names, labels)
    if task == "iflytek":
        assert labels == tuple(map(str, range(119)))
    if task == "csldcp":
        listed = (unpacked / "csldcp" / "labels_all.txt").read_text(encoding="utf-8").split()
        assert set(labels) == set(listed) and len(labels) == 67
    with_folder = named("fewclue-tnews") if task == "chid" else named(f"fewclue-{task}")
    if task != "chid":  # the folder of the one task will do as well
        assert len(list(classes.read(with_folder, unpacked / task, "dev"))) == union[1]


def test_the_tar_is_the_files(shared_data: Path, unpacked: Path) -> None:
    folder = shared_data / "fewclue"
    for name, split in (("fewclue-bustm-3", "dev"), ("fewclue-bustm", "test")):
        inside, outside = (list(classes.read(named(name), f, split)) for f in (folder, unpacked))
        assert [(e.text, e.pair, e.label) for e in inside] == [(e.text, e.pair, e.label) for e in outside]
        assert inside[0].where.endswith("fewclue.tar.xz:" + named(name).files[split][0] + ":1")
    assert len(list(multiple_choice.read(named("fewclue-chid-0"), folder, "dev"))) == 42


def test_csl_and_cluewsc_as_the_baselines_lay_them_out(unpacked: Path, tmp_path: Path) -> None:
    first = next(classes.read(named("fewclue-csl-0"), unpacked, "train"))
    assert first.text == "无线传感器网络 数据聚集 物联网 近似查询"
    assert first.pair is not None and first.pair.startswith("无线传感器网络中实现隐私保护")
    first = next(classes.read(named("fewclue-cluewsc-0"), unpacked, "train"))
    assert first.pair is None and first.label == "false"
    assert first.text.endswith("就像一片_树叶_飘入了树林，[他]走到了我的家人中间。")
    counts = Counter(
        (e.text.count("_") >= 2, "[" in e.text)
        for e in classes.read(named("fewclue-cluewsc"), unpacked, "test")
    )
    assert counts == {(True, True): 976}
    # The pronoun may come first; and CLUE's own files have the names train, dev and test.
    row = {"target": {"span1_text": "B", "span1_index": 3, "span2_text": "他", "span2_index": 0}}
    path = tmp_path / "train.json"
    path.write_text(
        json.dumps({**row, "text": "他见了B。", "label": "true", "idx": 4}, ensure_ascii=False) + "\r\n"
    )
    (found,) = classes.read(named("cluewsc"), tmp_path, "train")
    assert (found.text, found.name) == ("[他]见了_B_。", "4")
    for change, message in (
        ({"text": "他见B。"}, r"train\.json:1: `B` does not stand at character 3"),
        ({"target": {"span1_text": "B"}}, "lacks the words or the place of span 1"),
        ({"target": "B"}, "lacks the words or the place of span 1"),
    ):
        path.write_text(
            json.dumps({**row, "text": "他见了B。", "label": "true", **change}, ensure_ascii=False)
        )
        with pytest.raises(DataError, match=message):
            list(classes.read(named("cluewsc"), tmp_path, "train"))
    path.write_text('{"keyword": "a", "abst": "b", "label": "1"}')
    with pytest.raises(DataError, match=r"train\.json:1: `keyword` is not a list of words"):
        list(classes.read(named("csl"), tmp_path, "train"))


def test_what_is_not_there_is_reported(shared_data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no bustm/dev_0\.json"):
        list(classes.read(named("fewclue-bustm-0"), tmp_path, "dev"))
    with tarfile.open(tmp_path / "fewclue.tar", "w"):
        pass
    with pytest.raises(DataError, match=r"fewclue\.tar: has no bustm/dev_0\.json"):
        list(classes.read(named("fewclue-bustm-0"), tmp_path, "dev"))
    with pytest.raises(SettingsError, match=r"Did you mean `fewclue-tnews-\d`"):
        named("fewclue-tnews-9")
    assert not any(name.startswith("fewclue-chid") for name in known() if named(name).kind == "single")


@pytest.mark.parametrize("name", ["fewclue-eprstmt-0", "fewclue-iflytek", "fewclue-chid-1"])
def test_real_sets_go_the_whole_way(tune: Tune, unpacked: Path, name: str) -> None:
    task = {"train": None, "dev": None, "text": "text", "label": "label", "dataset": name, "folder": unpacked}
    settings = tune(
        name=name, task={**task, "max_length": 24}, training={"epochs": 0.05}, watching={"evaluations": 1}
    )
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert 0 <= result.scores["accuracy"] <= 1 and 0 <= result.test["accuracy"] <= 1
    assert any("cut to 24 tokens" in note for note in result.notes)


def test_a_missing_test_file_is_no_matter(tune: Tune, unpacked: Path, tmp_path: Path) -> None:
    for name in ("train_0.json", "dev_0.json"):
        (tmp_path / "bustm").mkdir(exist_ok=True)
        (tmp_path / "bustm" / name).write_bytes((unpacked / "bustm" / name).read_bytes())
    settings = tune(
        task={
            "train": None,
            "dev": None,
            "text": "text",
            "label": "label",
            "dataset": "fewclue-bustm-0",
            "folder": tmp_path,
        }
    )
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert data.test is None and len(data.train.examples) == 32


def test_rows_that_are_laid_out_keep_their_number() -> None:
    assert keywords(Row({"keyword": ["a", "b"], "abst": "c"}, "f:8", 7, "advice")).number == 7
    target = {"span1_text": "A", "span1_index": 0, "span2_text": "B", "span2_index": 1}
    assert marked(Row({"text": "AB", "target": target}, "f:8", 7)).number == 7
