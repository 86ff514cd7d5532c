"""Suites of minimal pairs: reading the original files, points, ties, standard errors; the command."""

from __future__ import annotations

import json
import math
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from albertine.errors import DataError
from albertine.evaluation import suites
from albertine.evaluation.minimal_pairs import points, score_suite
from albertine.evaluation.suites import SUITES, read_suite
from tests.cli.conftest import albertine as albertine

PAIRS = 5
Scores = tuple[NDArray[np.float64], NDArray[np.int64]]


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pair is a complete file."""
    monkeypatch.setattr(suites, "PAIRS", 1)
    monkeypatch.setattr(suites, "ASIDE", 1)


def write(folder: Path, suite: str, pairs: int = PAIRS) -> Path:
    """Files named like those of a suite; pair i of every paradigm is ("good i", "bad i")."""
    where = folder / "data"
    where.mkdir(parents=True)
    for name in SUITES[suite].phenomenon_of:
        lines = [
            json.dumps({"sentence_good": f"{name} good {i}", "sentence_bad": f"{name} bad {i}"})
            for i in range(pairs)
        ]
        (where / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def likes(texts: Sequence[str]) -> Iterator[float]:
    """Scores good sentences higher, except: bad ones of ellipsis; ties in irregular forms."""
    for text in texts:
        if text.startswith("ellipsis"):
            yield -1.0 if "bad" in text else -2.0
        elif text.startswith("irregular_past"):
            yield -3.0
        else:
            yield -5.0 if "good" in text else -5.5


def as_long(nats: Iterable[float]) -> Scores:
    """For texts of as many tokens."""
    sums = np.array(list(nats))
    return sums, np.full(len(sums), 4)


def score(texts: Sequence[str]) -> Scores:
    return as_long(likes(texts))


@pytest.mark.parametrize(("suite", "files", "phenomena"), [("blimp", 67, 12), ("sling", 54, 10)])
def test_the_files_are_those_of_the_publications(suite: str, files: int, phenomena: int) -> None:
    known = SUITES[suite]
    names = [name for listed in known.files.values() for name in listed.split()]
    assert len(names) == len(set(names)) == files and len(known.files) == phenomena


@pytest.mark.usefixtures("few_pairs")
def test_right_wrong_and_ties(tmp_path: Path) -> None:
    found = score_suite(read_suite("blimp", write(tmp_path, "blimp")), score)
    assert found.phenomena["ellipsis"].value == 0
    assert found.phenomena["irregular_forms"].value == 0.5, "ties count half"
    assert found.phenomena["binding"].value == 1
    assert found.overall.value == pytest.approx((67 - 2 - 2 + 1) / 67)
    assert found.overall.pairs == 67 * PAIRS
    assert found.overall.published["GPT-2"] == 0.83
    record = json.loads(json.dumps(found.as_dict()))
    assert len(record["paradigms"]) == 67 and record["paradigms"]["ellipsis_n_bar_1"]["right"] == 0
    assert record["paradigms"]["ellipsis_n_bar_1"]["phenomenon"] == "ellipsis"


def test_points_forgive_the_rounding_of_equal_sums() -> None:
    good = np.array([-3.0, -3.0, -3.0, -3.0])
    bad = np.array([-3.0, -3.00001, -2.9, -3.1])
    assert points(good, bad).tolist() == [0.5, 0.5, 0.0, 1.0]


@pytest.mark.usefixtures("few_pairs")
def test_standard_errors_by_hand(tmp_path: Path) -> None:
    """In every paradigm 1 of 5 is wrong: share .8, variance 5/4 of .8·.2; a mean over n: that over √n."""

    def first_wrong(texts: Sequence[str]) -> Scores:
        return as_long(float(("good" in t) != t.endswith(" 0")) for t in texts)

    found = score_suite(read_suite("blimp", write(tmp_path, "blimp")), first_wrong)
    one = math.sqrt(0.8 * 0.2 / 4)
    assert found.paradigms["wh_island"].value == pytest.approx(0.8)
    assert found.paradigms["wh_island"].error == pytest.approx(one)
    assert found.phenomena["ellipsis"].error == pytest.approx(one / math.sqrt(2))
    assert found.overall.error == pytest.approx(one / math.sqrt(67))


@pytest.mark.usefixtures("few_pairs")
def test_single_pairs_have_no_standard_error(tmp_path: Path) -> None:
    """No standard error is not an error of 0."""
    found = score_suite(read_suite("blimp", write(tmp_path, "blimp"), limit=1), score)
    assert found.overall.error is None and found.phenomena["ellipsis"].error is None
    assert json.loads(json.dumps(found.as_dict()))["standard_error"] is None


@pytest.mark.usefixtures("few_pairs")
def test_small_files_of_sling_are_not_in_its_mean(tmp_path: Path) -> None:
    suite = read_suite("sling", write(tmp_path, "sling"))
    reflexive = set(SUITES["sling"].files["reflexive"].split())

    def only_reflexive(texts: Sequence[str]) -> Scores:
        return as_long(float((t.split()[0] in reflexive) == ("good" in t)) for t in texts)

    found = score_suite(suite, only_reflexive)
    assert found.phenomena["reflexive"].value == 1 and found.overall.value == 0
    assert found.overall.published["human"] == 0.971 and found.as_dict()["published_by"] == "perplexity"


@pytest.mark.usefixtures("few_pairs")
def test_perplexity_does_not_have_a_sentence_pay_for_its_length(tmp_path: Path) -> None:
    """Good sentences of six tokens and 9 nats, bad ones of four and 8: SLING's own code takes the mean."""

    def longer(texts: Sequence[str]) -> Scores:
        good = np.array(["good" in text for text in texts])
        return np.where(good, -9.0, -8.0), np.where(good, 6, 4)

    found = score_suite(read_suite("sling", write(tmp_path, "sling")), longer)
    shares = [found.overall, *found.phenomena.values(), *found.paradigms.values()]
    assert {(share.value, share.by_perplexity) for share in shares} == {(0.0, 1.0)}
    assert (
        found.as_dict()["right_by_perplexity"] == 1 and found.as_dict()["phenomena"]["aspect"]["right"] == 0
    )
    blimp = score_suite(read_suite("blimp", write(tmp_path / "en", "blimp")), score)
    assert blimp.overall.by_perplexity == blimp.overall.value and blimp.as_dict()["published_by"] == "sum"


@pytest.mark.usefixtures("few_pairs")
def test_a_limit_takes_pairs_from_the_whole_file(tmp_path: Path) -> None:
    suite = read_suite("blimp", write(tmp_path, "blimp", 10), limit=3)
    assert {len(p.pairs) for p in suite.paradigms} == {3}
    assert [pair.good[-1] for pair in suite.paradigms[0].pairs] == ["0", "3", "6"]


@pytest.mark.usefixtures("few_pairs")
def test_own_results_of_blimp_are_taken_where_they_lie(tmp_path: Path) -> None:
    folder = write(tmp_path, "blimp")
    summary = folder / "raw_results" / "summary"
    summary.mkdir(parents=True)
    rows = [
        {"UID": "ellipsis_n_bar_1", "ngram": 0.2, "gpt2": 0.9},
        {"UID": "ellipsis_n_bar_2", "ngram": 0.4, "gpt2": 0.8},
        {"UID": "overall", "ngram": 0.6, "gpt2": 0.83},
    ]
    (summary / "models_summary.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    # Results of models a paradigm have the names of the paradigms.
    (folder / "raw_results" / "wh_island.jsonl").write_text("{}", encoding="utf-8")
    found = score_suite(read_suite("blimp", folder), score)
    assert found.phenomena["ellipsis"].published == pytest.approx({"5-gram": 0.3, "GPT-2": 0.85})
    assert found.phenomena["binding"].published == {}
    assert found.overall.published == {"5-gram": 0.6, "GPT-2": 0.83}


@pytest.mark.usefixtures("few_pairs")
def test_an_archive_is_as_good_as_a_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "sling")
    (tmp_path / "b").mkdir()
    with tarfile.open(tmp_path / "b" / "sling.tar.xz", "w:xz") as tar:
        tar.add(folder / "data", arcname="SLING_Data")
    assert read_suite("sling", tmp_path / "b") == read_suite("sling", folder)
    (tmp_path / "b" / "sling.tar.xz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="not a readable archive"):
        read_suite("sling", tmp_path / "b")


@pytest.mark.parametrize("kind", ["gz", "xz"])
@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_archive_is_distinguished_from_missing_files(
    kind: str, damage: str, tmp_path: Path
) -> None:
    folder, archive = write(tmp_path / "a", "blimp", 40), tmp_path / "b" / f"blimp.tar.{kind}"
    archive.parent.mkdir()
    with tarfile.open(archive, f"w:{kind}") as tar:  # type: ignore[call-overload]
        tar.add(folder / "data", arcname="data")
    whole = archive.read_bytes()
    for place in range(len(whole) // 4, len(whole) - 20, len(whole) // 20):
        rest = whole[place + 8 :] if damage == "flipped" else b""
        changed = bytes(byte ^ 255 for byte in whole[place : place + 8])
        archive.write_bytes(whole[:place] + changed + rest)
        with pytest.raises(DataError, match="not a readable archive"):
            read_suite("blimp", archive.parent)


@pytest.mark.usefixtures("few_pairs")
def test_bad_folders_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, "blimp")
    with pytest.raises(DataError, match="no suite `glue`"):
        read_suite("glue", folder)
    with pytest.raises(DataError, match="is no folder"):
        read_suite("blimp", tmp_path / "none")
    (folder / "data" / "wh_island.jsonl").unlink()
    (folder / "data" / "causative.jsonl").unlink()
    with pytest.raises(DataError, match=r"lacks 2 of the 67 files of BLiMP: causative\S+ wh_island"):
        read_suite("blimp", folder)
    write(tmp_path / "again", "blimp")
    broken = tmp_path / "again" / "data" / "passive_1.jsonl"
    for text, message in (
        ('{"sentence_good": "a"}', "line 1: has no texts"),
        ("{", "line 1: is not JSON"),
        ("[]", "line 1: is not a JSON object"),
        ("", "holds no pair"),
    ):
        broken.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_suite("blimp", tmp_path / "again")
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        read_suite("blimp", tmp_path / "again")


@pytest.mark.parametrize(("cut", "left", "whole"), [("zai_le", 999, "1,000"), ("animacy", 39, "40")])
def test_a_file_that_was_cut_at_the_end_of_a_line_is_refused(
    cut: str, left: int, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a limit, too. The files are as long as those of the publications."""
    two = replace(SUITES["sling"], files={"aspect": "zai_le", "reflexive": "animacy"})
    monkeypatch.setitem(SUITES, "sling", two)
    folder = write(tmp_path, "sling", 1000)
    shorten(folder / "data" / "animacy.jsonl", 40)
    assert [len(one.pairs) for one in read_suite("sling", folder).paradigms] == [1000, 40]
    assert [len(one.pairs) for one in read_suite("sling", folder, limit=9).paradigms] == [9, 9]
    shorten(folder / "data" / f"{cut}.jsonl", left)
    for limit in (None, 9):
        with pytest.raises(DataError, match=rf"{cut}\.jsonl: holds {left} of {whole} pairs\. "):
            read_suite("sling", folder, limit=limit)


def shorten(file: Path, lines: int) -> None:
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:lines]))


@pytest.mark.usefixtures("few_pairs")
def test_two_editions_in_a_folder_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "blimp", "blimp")
    whole = read_suite("blimp", folder)
    shutil.copytree(folder / "data", folder / "a_filtered")
    with tarfile.open(folder / "blimp.tar.gz", "w:gz") as tar:
        tar.add(folder / "data", arcname="data")
    other = folder / "a_filtered" / "wh_island.jsonl"
    other.write_bytes(other.read_bytes().replace(b"\n", b"\r\n"))
    assert read_suite("blimp", folder) == whole, "copies are one edition, whatever ends their lines"
    shorten(other, 3)
    with pytest.raises(
        DataError, match=r"differs from \S+a_filtered/wh_island.jsonl.*Name the folder"
    ) as caught:
        read_suite("blimp", folder)
    assert caught.value.where == f"{folder}/blimp.tar.gz:data/wh_island.jsonl"
    (folder / "blimp.tar.gz").unlink()
    with pytest.raises(DataError, match="differs from"):
        read_suite("blimp", folder)


@pytest.mark.usefixtures("few_pairs")
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, read = write(tmp_path, "blimp"), Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.stem == "wh_island":
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(DataError, match=r"wh_island.jsonl: cannot be read \(Input/output error\)\. Check"):
        read_suite("blimp", folder)
