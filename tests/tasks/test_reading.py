"""Task files: the real ones with their official row counts, and mistakes in own ones."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from albertine.errors import DataError, SettingsError
from albertine.tasks.dataset_files import check_known
from albertine.tasks.dataset_registry import Columns, Dataset, named
from albertine.tasks.datasets.classes import class_names, kept, label_names, read
from albertine.tasks.examples import Example

OFFICIAL = [
    ("cola", "glue/CoLA", {"train": 8551, "dev": 1043, "test": 1063}),
    ("sst-2", "glue/SST-2", {"train": 67349, "dev": 872, "test": 1821}),
    ("mrpc", "glue/MRPC", {"train": 3668, "dev": 408, "test": 1725}),
    ("sts-b", "glue/STS-B", {"train": 5749, "dev": 1500, "test": 1379}),
    ("rte", "glue/RTE", {"train": 2490, "dev": 277, "test": 3000}),
    ("wnli", "glue/WNLI", {"train": 635, "dev": 71, "test": 146}),
    ("qnli", "glue/QNLI", {"dev": 5463, "test": 5463}),
    ("diagnostic", "glue/diagnostic", {"test": 1104}),
    ("sick-entailment", "sick", {"train": 4500, "dev": 500, "test": 4927}),
    ("sick-relatedness", "sick", {"train": 4500, "dev": 500, "test": 4927}),
    ("tnews", "tnews", {"train": 53360, "dev": 10000}),
    ("afqmc", "afqmc", {"train": 34334, "dev": 4316, "test": 3861}),
    ("ocnli-10k", "ocnli", {"train": 9985, "dev": 2950, "test": 3000}),
    ("chnsenticorp", "chnsenticorp", {"train": 9600, "dev": 1200, "test": 1200}),
    ("lcqmc", "lcqmc", {"dev": 8802, "test": 12500}),
    ("bq", "bq_corpus", {"dev": 10000, "test": 10000}),
    ("paws-x", "pawsx_zh", {"dev": 2000}),
    ("sentiment", "sentiment_bert4keras", {"train": 16883, "dev": 2111, "test": 2111}),
    ("shop-reviews", "online_shopping_10_cats", {"train": 62774}),
]


UNLABELLED = {("lcqmc", "test"), ("bq", "test")}
"""Whose copies here lack the answers."""


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "folder", "counts"), OFFICIAL, ids=[row[0] for row in OFFICIAL])
def test_real_files_have_their_official_counts(
    shared_data: Path, name: str, folder: str, counts: dict[str, int]
) -> None:
    dataset = named(name)
    for split, count in counts.items():
        found = kept(read(dataset, shared_data / folder, split))
        assert len(found) == count, split
        labelled = dataset.columns_of(split).label is not None and (name, split) not in UNLABELLED
        assert all((e.label is not None) == labelled for e in found)
        if labelled and dataset.labels:
            check_known("class", {split: found}, class_names, dataset.labels)
        assert not found[0].text.startswith("\ufeff")  # one text of AFQMC does


def test_rows_that_the_authors_drop_are_counted(shared_data: Path) -> None:
    dataset = named("ocnli-10k")
    train = list(read(dataset, shared_data / "ocnli", "train"))
    assert len(train) - len(kept(train)) == 15


def test_classes_of_tnews(shared_data: Path) -> None:
    dev = list(read(named("tnews"), shared_data / "tnews", "dev"))
    names = label_names(named("tnews"), dev)
    assert len(names) == 15
    assert names[0] == "100" and names == tuple(sorted(names, key=int))


OWN = Dataset(files={"train": ("my file.csv",)}, columns=Columns(pair="other"))
ALONE = OWN.model_copy(update={"columns": Columns()})


def own(tmp_path: Path, content: bytes, name: str = "my file.csv", dataset: Dataset = OWN) -> list[Example]:
    path = tmp_path / name
    path.write_bytes(content)
    return list(read(dataset.model_copy(update={"files": {"train": (path,)}}), tmp_path, "train"))


def test_quotes_line_ends_marks_and_compression(tmp_path: Path) -> None:
    text = '\ufefftext,other,label\r\n"a, b",c,1\r\n"two\nlines",d,0\r\n'
    first, second = own(tmp_path, text.encode())
    assert (first.text, first.pair, first.label) == ("a, b", "c", "1")
    assert second.text == "two\nlines" and second.where.endswith("my file.csv:3")
    packed = own(tmp_path, lzma.compress(text.encode()), "b.csv.xz")
    assert [e.text for e in packed] == [first.text, second.text]


def test_json_lines(tmp_path: Path) -> None:
    lines = '{"text": "你好", "other": "x", "label": 3}\n\n{"text": 5, "other": "y", "label": "4"}\n'
    first, second = own(tmp_path, lines.encode(), "a.jsonl")
    assert (first.text, first.label, second.text) == ("你好", "3", "5")


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"text,label\na,1\n", "a.csv", r"a\.csv:2: has no column `other`; it has `text`, `label`"),
        (b"text,other,label\na,1\n", "a.csv", r"a\.csv:2: has 2 fields, the file has 3 columns"),
        (b"text\tother\tlabel\na\tb\tc\td\n", "a.tsv", r"a\.tsv:2: has 4 fields"),
        (b'{"text": "a"}\nnot json\n', "a.jsonl", r"a\.jsonl:1: has no column"),
        (b"[1]\n", "a.jsonl", r"a\.jsonl:1: holds a number, not an object"),
        (b"{", "a.jsonl", r"a\.jsonl:1: is not JSON"),
        (
            "text,other,label\ncaf\u00e9,b,1\n".encode("latin-1"),
            "a.csv",
            r"not utf-8 text \(line 2.*task\.encoding=latin-1",
        ),
        (b'{"text": null, "other": "b", "label": 1}\n', "a.jsonl", r"`text` is empty, not text"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(
    tmp_path: Path, content: bytes, name: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        own(tmp_path, content, name)


def test_labels_that_cannot_be(tmp_path: Path) -> None:
    numbers = ALONE.model_copy(update={"kind": "score"})
    with pytest.raises(DataError, match=r"a\.csv:3: `label` is `high`, not a number"):
        own(tmp_path, b"text,label\na,1.5\nb,high\n", "a.csv", numbers)
    examples = own(tmp_path, b"text,other,label\na,b,yes\nc,d,no\ne,f,maybe\n", "b.csv")
    assert label_names(OWN, examples) == ("maybe", "no", "yes")
    numbered = own(tmp_path, b"text,other,label\na,b,10\nb,b,2\nc,b,1\nd,b,-3\n", "c.csv")
    assert label_names(OWN, numbered) == ("-3", "1", "2", "10")
    with pytest.raises(DataError, match=r"b\.csv:4: has the class `maybe`"):
        check_known("class", {"train": examples}, class_names, ("no", "yes"))
    with pytest.raises(DataError, match="has only the class `yes`"):
        label_names(OWN, examples[:1])


def test_several_classes_a_row(tmp_path: Path) -> None:
    many = ALONE.model_copy(update={"kind": "multi", "separator": "|"})
    rows = own(tmp_path, b"text,label\na,x|y\nb,\nc,z\n", "a.csv", many)
    assert [class_names(r) for r in rows] == [frozenset("xy"), frozenset(), frozenset("z")]
    assert label_names(many, rows) == ("x", "y", "z")
    listed = own(tmp_path, b'{"text": "a", "label": ["x", "z"]}\n', "a.jsonl", many)
    assert class_names(listed[0]) == frozenset("xz")


def test_names_and_folders_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="Did you mean `tnews`"):
        named("tnew")
    (tmp_path / "train.json").write_text("{}")
    with pytest.raises(DataError, match=r"has no dev\.json; it has train\.json"):
        list(read(named("tnews"), tmp_path, "dev"))


def test_glue_files_that_are_not_at_hand_by_their_documented_headers(tmp_path: Path) -> None:
    """QQP's training file has rows of too few fields, which Google's reader passes over as well."""
    (tmp_path / "train.tsv").write_text(
        'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA?\tB?\t1\n4\t5\t6\tbroken\n7\t8\t9\tC?\t"D?\t0\n'
    )
    dataset = named("qqp")
    found = list(read(dataset, tmp_path, "train"))
    assert len(found) == 3 and found[1].where.endswith("train.tsv:3")
    assert [(e.name, e.text, e.pair, e.label) for e in kept(found)] == [
        ("1", "A?", "B?", "1"),
        ("7", "C?", '"D?', "0"),
    ]
    header = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse"
    names = [*header.split(), "sentence2_parse", "sentence1", "sentence2", "label1", "gold_label"]
    row = ["0", "1", "2", "fiction", "p", "p", "p", "p", "A man.", "A cat.", "neutral", "neutral"]
    text = "\n".join("\t".join(x) for x in (names, row, [*row[:-1], "-"])) + "\n"
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"):
        (tmp_path / name).write_text(text)
    for task in ("mnli", "mnli-mm"):
        for split in ("train", "dev"):
            (only,) = kept(read(named(task), tmp_path, split))
            assert (only.text, only.pair, only.label) == ("A man.", "A cat.", "neutral")
    (tmp_path / "train.tsv").write_text("index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tnot_entailment\n")
    (only,) = read(named("qnli"), tmp_path, "train")
    assert (only.text, only.pair, only.label) == ("Who?", "He.", "not_entailment")


def test_ocnli_is_learned_from_whole() -> None:
    assert named("ocnli").files["train"] == ("train.50k.json",)
    assert named("ocnli-10k").files["train"] == ("train.10k.json",)


@pytest.mark.parametrize(("line", "label"), [("甲\t乙\t1\n", "1"), ("甲\t乙\n", None)])
def test_lcqmc_is_tested_with_labels_and_without(tmp_path: Path, line: str, label: str | None) -> None:
    (tmp_path / "test.tsv").write_text(line, encoding="utf-8")
    (one,) = read(named("lcqmc"), tmp_path, "test")
    assert (one.text, one.pair, one.label) == ("甲", "乙", label)
