"""Rows out of files and out of memory: the same fields whatever the form, or one message with the place."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.errors import DataError
from albertine.tasks.materialized_rows import MaterializedRows
from albertine.tasks.readers.files import text_lines
from albertine.tasks.readers.table import rows_of

ROWS: list[dict[str, Any]] = [
    {"text": "a, good “film”", "label": "1"},
    {"text": 'he said "no"', "label": "0"},
    {"text": "两岸", "label": "1"},
]


def written(folder: Path, form: str) -> Path:
    """The three rows as a file of that form."""
    path = folder / f"rows.{form}"
    kind = form.partition(".")[0]
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(ROWS), path.with_suffix("") if form.endswith("gz") else path)
        text = (path.with_suffix("") if form.endswith("gz") else path).read_bytes()
    elif kind == "csv":
        text = 'text,label\n"a, good “film”",1\n"he said ""no""",0\n两岸,1\n'.encode()
    elif kind == "tsv":
        text = "\n".join(["text\tlabel", *("\t".join(row.values()) for row in ROWS)]).encode()
    elif kind == "json":
        text = json.dumps(ROWS, indent=2, ensure_ascii=False).encode()
    else:
        text = "\n".join(map(json.dumps, ROWS)).encode()
    path.write_bytes({"gz": gzip.compress, "xz": lzma.compress}.get(form.rpartition(".")[2], bytes)(text))
    return path


FORMS = ["csv", "tsv", "jsonl", "json", "parquet", "csv.gz", "tsv.xz", "json.gz", "parquet.gz"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_file_gives_the_same_rows(tmp_path: Path, form: str) -> None:
    found = list(rows_of(written(tmp_path, form)))
    assert [dict(row.fields) for row in found] == ROWS
    assert [row.number for row in found] == [0, 1, 2]
    assert found == list(rows_of(str(written(tmp_path, form))))


def test_places_are_lines_and_numbers_of_rows(tmp_path: Path) -> None:
    ends = {form: [r.where.rpartition(form)[2] for r in rows_of(written(tmp_path, form))] for form in FORMS}
    assert ends["csv"] == ends["tsv"] == [":2", ":3", ":4"]
    assert ends["jsonl"] == [":1", ":2", ":3"]
    assert ends["json"] == [":2", ":6", ":10"]
    assert ends["parquet"] == [", row 1", ", row 2", ", row 3"]


def pandas_frame() -> Any:
    return pytest.importorskip("pandas").DataFrame(ROWS)


def arrow_table() -> Any:
    return pytest.importorskip("pyarrow").Table.from_pylist(ROWS)


def dataset() -> Any:
    return pytest.importorskip("datasets").Dataset.from_list(ROWS)


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(ROWS)


MEMORY = {
    "list": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "mapping": lambda: {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "DataFrame": pandas_frame,
    "polars": polars_frame,
    "Table": arrow_table,
    "Dataset": dataset,
}


@pytest.mark.parametrize("name", MEMORY)
def test_what_is_in_memory_gives_the_same_rows(name: str) -> None:
    source = MEMORY[name]()
    found = list(rows_of(source))
    assert [dict(row.fields) for row in found] == ROWS
    assert [row.where for row in found] == [f"{type(source).__name__}[{n}]" for n in range(3)]


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "big5", "latin-1"])
def test_rows_in_memory_are_read_as_kept_whatever_files_are_in(tmp_path: Path, encoding: str) -> None:
    """`task.encoding` is of files: rows are kept in UTF-8, which GB18030 reads too, as other characters."""
    texts = ["été", "où"] if encoding == "latin-1" else ["很好", "太差"]
    kept, train = (
        MaterializedRows.of([{"text": text} for text in texts], tmp_path, "dev"),
        tmp_path / "train.csv",
    )
    kept.write()
    train.write_text("\n".join(["text", *texts]), encoding=encoding)
    for path in (kept.path, train):
        assert [row.get("text") for row in rows_of(path, encoding=encoding)] == texts


def test_polars_is_known_by_its_shape() -> None:
    class DataFrame:
        columns = tuple(ROWS[0])

        def iter_rows(self) -> Iterator[tuple[Any, ...]]:
            return (tuple(row.values()) for row in ROWS)

    assert [dict(row.fields) for row in rows_of(DataFrame())] == ROWS


def test_missing_values_are_none_wherever_they_come_from(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, None], "b": pd.array([1, None], dtype="Int64"), "c": ["x", None]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    (tmp_path / "b.jsonl").write_text('{"a": NaN, "b": null, "c": null}')
    for source in (frame, tmp_path / "a.parquet", tmp_path / "a.jsonl"):
        first, second = rows_of(source)
        assert dict(second.fields) == {"a": None, "b": None, "c": None}
        assert dict(first.fields) == {"a": 1.0, "b": 1, "c": "x"}
        assert type(first.fields["b"]) is int
    assert dict(next(rows_of(tmp_path / "b.jsonl")).fields) == {"a": None, "b": None, "c": None}


def test_numbers_and_dates_of_numpy_that_python_has_none_for(tmp_path: Path) -> None:
    long = np.array([1.5, np.nan, 3], dtype=np.longdouble)
    days = np.array(["2020-01-02", "NaT", "12000-01-01"], dtype="datetime64[D]")
    moments = np.array(["2020-01-02", "NaT", "2020-01-02T03:04:05.000000006"], dtype="datetime64[ns]")
    rows = [row.fields["a"] for row in rows_of({"a": long})]
    assert rows == [1.5, None, 3.0] and type(rows[0]) is float
    assert [row.fields["a"] for row in rows_of({"a": days})] == [date(2020, 1, 2), None, "12000-01-01"]
    read = [row.fields["a"] for row in rows_of({"a": moments})]
    assert read == ["2020-01-02T00:00:00.000000000", None, "2020-01-02T03:04:05.000000006"]
    kept = MaterializedRows.of({"a": days}, tmp_path, "dev")
    assert kept.content.decode("utf-8-sig").splitlines()[0] == '{"a": "2020-01-02"}'


def test_classes_of_a_dataset_have_their_names() -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "label": datasets.ClassLabel(names=["neg", "pos"]),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
        }
    )
    rows = {"label": [1, -1], "tags": [[0, 1], []]}
    found = [dict(row.fields) for row in rows_of(datasets.Dataset.from_dict(rows, features=features))]
    assert found == [{"label": "pos", "tags": ["O", "B-X"]}, {"label": None, "tags": []}]


def test_classes_of_parquet_have_their_names(tmp_path: Path) -> None:
    """`datasets` keeps them in the metadata of the schema, pandas and Arrow as a dictionary."""
    datasets, pd = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    arrow, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    label = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": label, "tags": datasets.Sequence(label)}
    )
    columns = {"text": ["a", "b", "c"], "label": [1, -1, 0], "tags": [[0, 1], [], [1]]}
    whole = datasets.Dataset.from_dict(columns, features=features)
    whole.to_parquet(tmp_path / "a.parquet")
    names = [("pos", ["neg", "pos"]), (None, []), ("neg", ["pos"])]
    for source in (tmp_path / "a.parquet", pq.read_table(tmp_path / "a.parquet"), whole):
        assert [(row.fields["label"], row.fields["tags"]) for row in rows_of(source)] == names
    pd.DataFrame({"label": pd.Categorical(["pos", None, "neg"])}).to_parquet(tmp_path / "b.parquet")
    coded = arrow.array(["pos", None, "neg"]).dictionary_encode()
    pq.write_table(arrow.table({"label": coded}), tmp_path / "c.parquet")
    for name in ("b.parquet", "c.parquet"):
        assert [row.fields["label"] for row in rows_of(tmp_path / name)] == ["pos", None, "neg"]
    table = arrow.table({"label": [2]}).replace_schema_metadata(whole.data.schema.metadata)
    pq.write_table(table, tmp_path / "d.parquet")
    for source in (table, tmp_path / "d.parquet"):
        with pytest.raises(DataError, match=r"row 0: `label` has class number 2 of 2 classes\. Correct"):
            list(rows_of(source))


def test_a_class_number_of_a_dataset_that_has_no_name_is_refused_with_its_row() -> None:
    datasets = pytest.importorskip("datasets")
    plain = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 2]})
    label = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    wrong = datasets.Dataset(plain.data, info=datasets.DatasetInfo(features=features))
    for source in (wrong, wrong.with_format("pandas")):
        with pytest.raises(DataError, match=r"row 1: `label` has class number 2 of 2 classes\. Correct"):
            list(rows_of(source))


@pytest.mark.parametrize("form", ["numpy", "torch", "pandas", "arrow"])
def test_a_dataset_gives_the_same_rows_in_every_format(form: str) -> None:
    """Two of them make a table of every row."""
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": label})
    whole = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    for source in (whole.with_format(form), whole.to_iterable_dataset().with_format(form)):
        found = [dict(row.fields) for row in rows_of(source)]
        assert found == [{"text": "a", "label": "pos"}, {"text": "b", "label": "neg"}]


def test_columns_without_a_header_line_have_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("体验2D巅峰\t8\n两岸\t3\n")
    assert [dict(r.fields) for r in rows_of(path, header=False)] == [
        {"1": "体验2D巅峰", "2": "8"},
        {"1": "两岸", "2": "3"},
    ]
    assert [r.where for r in rows_of(path, header=False)] == [f"{path}:1", f"{path}:2"]
    assert [r.get("title") for r in rows_of(path, header=("title", "class"))] == ["体验2D巅峰", "两岸"]
    with pytest.raises(DataError, match=r"a\.tsv:2: has no column `text`.*set task\.header=false"):
        next(rows_of(path, prefix="task.")).get("text")
    with pytest.raises(DataError, match=r"or pass --no-header if its first line is a row"):
        next(rows_of(path, prefix="--")).get("text")
    with pytest.raises(DataError, match=r"a\.tsv:1: has no column `text`; it has `1`, `2`\. .*by number"):
        next(rows_of(path, header=False)).get("text")


def test_a_kind_of_task_is_named_where_there_are_settings(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{\n"data": [{"paragraphs": []}]}')
    (tmp_path / "b.jsonl").write_text('{"data": [{"paragraphs": []}]}')
    for prefix in ("task.", "--"):
        with pytest.raises(DataError) as broken:
            next(rows_of(tmp_path / "a.json", prefix=prefix))
        with pytest.raises(DataError) as lacking:
            next(rows_of(tmp_path / "b.jsonl", prefix=prefix)).get("text")
        assert ["task.kind=answers" in str(e.value) for e in (broken, lacking)] == [prefix == "task."] * 2


def test_a_line_of_chinese_is_no_line_of_names_from_half_the_characters_on(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    for text, reported in (
        ("词汇阅读是关键，考研暴强识解词汇的五种方法", True),
        ("评论内容（不少于二十个字，不要表情）", False),
    ):
        path.write_text(f"教育\t{text}\n教育\t很好\n", encoding="utf-8")
        with pytest.raises(DataError) as error:
            next(rows_of(path, prefix="task.")).get("2")
        assert ("set task.header=false if its first line is a row" in str(error.value)) == reported


def test_a_real_line_of_names_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("body\tclass\na\tb\n")
    with pytest.raises(DataError) as error:
        next(rows_of(tmp_path / "a.tsv")).get("text")
    assert "header" not in str(error.value)


MARKED = {
    "jsonl": '\ufeff{"text": "张\ufeff三，好", "label": "1"}\n\ufeff{"text": "李四", "label": "2"}\n',
    "json": '\ufeff[{"text": "张\ufeff三，好", "label": "1"},\n{"text": "李四", "label": "2"}]\n',
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gb18030"])
@pytest.mark.parametrize("form", MARKED)
def test_a_mark_stays_in_a_text_of_json_whose_characters_are_counted(
    tmp_path: Path, form: str, encoding: str
) -> None:
    path = tmp_path / f"rows.{form}"
    path.write_text(MARKED[form], encoding=encoding)
    rows = [(row.fields["text"], row.fields["label"]) for row in rows_of(path, encoding=encoding)]
    assert rows == [("张\ufeff三，好", "1"), ("李四", "2")]


def test_a_mark_stays_where_a_block_of_a_file_begins_with_it(tmp_path: Path) -> None:
    path, text = tmp_path / "rows.jsonl", "字\ufeff" * 60_000
    for length in range(1, 7):  # of the six bytes of two characters any one begins the second block
        path.write_text(f'{{"{"t" * length}": "{text}"}}\n', encoding="utf-8")
        assert [row.fields["t" * length] for row in rows_of(path)] == [text]


def test_quotes_of_tsv(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    texts = ['say "hi"', '"all of it"', "plain", '"', 'a ""b""']
    frame = pd.DataFrame({"text": texts, "label": list("abcde")})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    assert [row.get("text") for row in rows_of(tmp_path / "a.tsv")] == texts
    raw = ['"Hello" he said', '"Hello"', '""Hello""', '"say ""hi"""', 'no "']
    (tmp_path / "b.tsv").write_text("\n".join(["text", *raw]))
    assert [row.get("text") for row in rows_of(tmp_path / "b.tsv")] == [*raw[:3], 'say "hi"', raw[4]]
    assert [row.get("text") for row in rows_of(tmp_path / "b.tsv", quotes=False)] == raw


def test_a_field_of_quotes_alone_takes_no_time(tmp_path: Path) -> None:
    field = '"' * 200_001 + "x"
    (tmp_path / "a.tsv").write_text(f"text\n{field}\n")
    assert next(rows_of(tmp_path / "a.tsv")).get("text") == field


def test_text_lines_of_a_verb_without_the_setting_do_not_name_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(DataError, match=r"is not utf-8 text.*\. Convert it to UTF-8$"):
        list(text_lines(tmp_path / "a.txt", prefix=None))


def test_long_fields_and_fields_over_several_lines(tmp_path: Path) -> None:
    long = "word " * 60_000
    (tmp_path / "a.csv").write_text(f'text,label\n"one\ntwo",x\n{long},y\n')
    first, second = rows_of(tmp_path / "a.csv")
    assert first.get("text") == "one\ntwo" and first.where.endswith(":2")
    assert second.get("text") == long and second.where.endswith(":4")


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    for name, gap in (("a.tsv", "\t"), ("a.csv", ",")):
        (tmp_path / name).write_text(f"text{gap}label\n\na{gap}b\n   \n{gap}c\n{gap}\n")
        rows = [tuple(row.fields.values()) for row in rows_of(tmp_path / name)]
        assert rows == [("a", "b"), ("", "c"), ("", "")]


def test_an_empty_text_in_quotes_is_a_row_of_its_only_column(tmp_path: Path) -> None:
    """As pandas and csv write it; otherwise answers would be beside other rows."""
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["review"], ["a"], [""], ["b"]])
    assert path.read_bytes().split() == [b"review", b"a", b'""', b"b"]
    path.write_bytes(path.read_bytes() + b"\n   \n")
    assert [row.fields for row in rows_of(path)] == [{"review": "a"}, {"review": ""}, {"review": "b"}]


def test_every_column_without_a_name_is_kept(tmp_path: Path) -> None:
    """An index of pandas, whose column has no name, and the comma with which Excel may end a line."""
    path = tmp_path / "a.csv"
    path.write_text(",text,\n0,a man,x\n1,a dog,y\n")
    assert [tuple(row.fields.items()) for row in rows_of(path)] == [
        (("", "0"), ("text", "a man"), ("3", "x")),
        (("", "1"), ("text", "a dog"), ("3", "y")),
    ]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (("timestamp", [1, None], "ns"), ["1970-01-01 00:00:00.000000001", None]),
        (("date32", [3_000_000, 1]), ["10183-09-21", "1970-01-02"]),
        (("timestamp", [2**62, 0], "us"), None),
        (("duration", [1, 2], "ns"), [1, 2]),
        (("timestamp", [1_000, None], "ns"), [datetime(1970, 1, 1, microsecond=1), None]),
        (("duration", [1_000], "ns"), [timedelta(microseconds=1)]),
        (("time64", [1], "ns"), ["00:00:00.000000001"]),
    ],
)
def test_times_of_parquet_that_python_has_none_for(
    tmp_path: Path, column: Any, expected: list[Any] | None
) -> None:
    """In an unused column, too, they raised a traceback. pandas, if it is there, has times of
    nanoseconds of its own, and changes nothing."""
    arrow, path = pytest.importorskip("pyarrow"), tmp_path / "a.parquet"
    kind, values, *unit = column
    when = arrow.array(values, getattr(arrow, kind)(*unit))
    table = arrow.table({"text": ["a", "b"][: len(values)], "when": when})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    found = [row.fields for row in rows_of(path)]
    assert [row["text"] for row in found] == ["a", "b"][: len(values)]
    if expected is None:
        assert isinstance(found[0]["when"], str) and isinstance(found[1]["when"], str)
    else:
        assert [row["when"] for row in found] == expected


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("text,label\na;b,c\n", [["a;b", "c"]]),
        ("text\na;b\n", [["a;b"]]),
        ('"a;b"\nc;d\n', [["c;d"]]),
        ("a;b\n1,5;2\n", [["1,5", "2"]]),
        ("one, two;b;c\n1;2;3\n", [["1", "2", "3"]]),
        ("a\tb\n1,5\t2;3\n", [["1,5", "2;3"]]),
        ("\n \na;b\n1;2\n", [["1", "2"]]),
    ],
)
def test_the_header_line_decides_the_separator_of_csv(
    tmp_path: Path, content: str, rows: list[list[str]]
) -> None:
    """Excel writes semicolons where a comma is that of decimals."""
    (tmp_path / "a.csv").write_text(content)
    assert [[*row.fields.values()] for row in rows_of(tmp_path / "a.csv")] == rows


def test_a_file_without_names_is_parted_by_commas(tmp_path: Path) -> None:
    """Its first line is a text, which may contain semicolons."""
    (tmp_path / "a.csv").write_text("yes; well\nno\n")
    assert [row.get("1") for row in rows_of(tmp_path / "a.csv", header=False)] == ["yes; well", "no"]


RETURNS = [
    (b"text,label\r\na,b\r\n", [["a", "b"]]),
    (b"text,label\ra,b\rc,d\r", [["a", "b"], ["c", "d"]]),
    (b'text,label\r\n"one\r\ntwo\rthree\nfour",b\r\n', [["one\r\ntwo\rthree\nfour", "b"]]),
]


@pytest.mark.parametrize(("content", "rows"), RETURNS)
def test_carriage_returns_in_quotes_stay(tmp_path: Path, content: bytes, rows: list[list[str]]) -> None:
    """Else offsets of entities would point elsewhere in a text that `predict` has written."""
    (tmp_path / "a.csv").write_bytes(content)
    assert [[*row.fields.values()] for row in rows_of(tmp_path / "a.csv")] == rows


@pytest.mark.parametrize("line", [b"sep=;\n", b"sep=;\r\n", b'"sep=;"\n', b"\xef\xbb\xbfSEP=;\n"])
def test_the_separator_line_of_excel(tmp_path: Path, line: bytes) -> None:
    for name, mark in (("a.csv", b";"), ("a.tsv", b"\t")):
        rows = [b"te,xt", b"label"], [b"a,b", b"x"], [b"c", b"y"]
        content = b"\n".join(map(mark.join, rows))
        (tmp_path / name).write_bytes(line.replace(b";", mark) + content)
        found = list(rows_of(tmp_path / name))
        assert [[*row.fields.items()] for row in found] == [
            [("te,xt", "a,b"), ("label", "x")],
            [("te,xt", "c"), ("label", "y")],
        ]
        assert [row.where for row in found] == [f"{tmp_path / name}:{n}" for n in (3, 4)]
        assert [*next(rows_of(tmp_path / name, header=False)).fields.values()] == ["te,xt", "label"]


WRONG: list[tuple[str, bytes, str]] = [
    ("a.csv", b"text,label\na b\0,b\n", r"a\.csv: is a binary file.*NUL byte in line 2.*remove that.* tr -d"),
    ("a.csv", b"text\na\n" + b"b\n" * 40_000 + b"c\0\n", r"a\.csv: is a binary file.*NUL byte in line 40003"),
    (
        "a.csv",
        b"text,label\na\rb,c\n",
        r"a\.csv:2: has a carriage return \(\\r\) outside of quotes.*in quotes",
    ),
    ("a.tsv", b"text\tlabel\na\rb\tc\n", r"a\.tsv:2: has 1 fields.*carriage return \(\\r\) ends a line too"),
    ("a.csv", b"text,text\na,b\n", r"a\.csv:1: has two columns `text`"),
    ("a.tsv", b"text\tlabel\na\n", r"a\.tsv:2: has 1 fields, the file has 2 columns"),
    (
        "a.tsv",
        b'label\ttext\nx\t"one\ntwo\nthree"\n',
        r"a\.tsv:3: has 1 fields.*several lines.* as CSV$",
    ),
    ("a.tsv", b'text\tlabel\n"a\tb"\tx\n', r"a\.tsv:2: has 3 fields.*with a tab in one, as CSV$"),
    ("a.tsv", b'text\tlabel\n"a"\t""b""\ta 6" nail\n', r"a\.tsv:2: has 3 fields.*must not hold a bare tab"),
    ("a.csv", b'text,label\n"""a",b,c\n', r"a\.csv:2: has 3 fields.*unquoted comma$"),
    ("a.csv", b'text,label\nyes,"a\nno,b\n', r"a\.csv:2: is not CSV \(unexpected end of data\)"),
    ("a.csv", b'text,label\n"a"b,c\n', r"a\.csv:2: is not CSV .*doubled"),
    ("a.jsonl", b'{"text": "a"}\n{"text"\n', r"a\.jsonl:2: is not JSON"),
    ("a.jsonl", b'{"text": "a"}\n3\n', r"a\.jsonl:2: holds a number, not an object"),
    ("a.jsonl", b'{"text": "a"}\n{"text": ["\\ud83d"]}\n', r"a\.jsonl:2: has half of a character"),
    ("a.jsonl", b'{"\\ud83d": "a"}\n', r"a\.jsonl:1: has half of a character"),
    ("a.json", b'[{"text": "a"},\n {"text": }]', r"a\.json:2: is not JSON \(Expecting value\)"),
    ("a.json", b'[{"text": "a"}', r"a\.json:1: is not JSON"),
    ("a.json", b'[{"text": "a"} {"text": "b"}]', r"a\.json:1: is not JSON"),
    ("a.json", b'[{"text": "a"}]\n{}', r"a\.json:1: goes on after the end"),
    ("a.json", b'["a"]', r"a\.json:1: holds text, not an object"),
    ("a.parquet", b"text\na\n", r"a\.parquet: is no Parquet file"),
    ("a.tsv", b"PAR1 and the rest", r"a\.tsv: is damaged or no Parquet file"),
    ("a.tsv", "text\ncafé\n".encode("latin-1"), r"a\.tsv: is not utf-8 text.*or pass --encoding=latin-1"),
    ("a.tsv", "text\na\n".encode("utf-16"), r"a\.tsv: is UTF-16.*ass --encoding=utf-16"),
]


@pytest.mark.parametrize(("name", "content", "message"), WRONG, ids=[f"{w[0]} {w[2]:.40}" for w in WRONG])
def test_one_message_with_the_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(rows_of(tmp_path / name, prefix="--"))


def test_what_a_program_hands_over_and_is_no_table() -> None:
    pd, np = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    datasets = pytest.importorskip("datasets")

    def breaks() -> Iterator[dict[str, str]]:
        yield {"text": "a"}
        raise OSError("the line is dead")

    twice = pd.DataFrame([["a", "b"]], columns=["text", "text"])
    several = datasets.DatasetDict({"train": dataset(), "test": dataset()})
    for source, message in (
        (pd.Series(["a"]), "a Series holds no rows"),
        (np.zeros(3), "a ndarray holds no rows"),
        (None, "a NoneType holds no rows"),
        (b"a", "a bytes holds no rows"),
        (["a"], r"list\[0\]: is text, not a mapping"),
        ([{"text": "a"}, ("b",)], r"list\[1\]: is a list|list\[1\]: is a tuple"),
        (twice, "DataFrame: has two columns `text`"),
        ({"text": ["a", "b"], "label": ["c"]}, r"different lengths \(`text` 2, `label` 1\)"),
        ({"text": "abc"}, "column `text` is text"),
        (several, "DatasetDict: holds several tables: train, test"),
        (breaks(), r"generator\[1\]: cannot be read \(OSError: the line is dead\)"),
        ([{"text": "\ud83d"}], r"list\[0\]: has half of a character"),
    ):
        with pytest.raises(DataError, match=message):
            list(rows_of(source))


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "parquet"])
def test_a_large_file_is_never_in_memory_as_one(tmp_path: Path, form: str) -> None:
    row, count = {"text": "word " * 400, "label": "a"}, 4_000
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist([row] * count), path, row_group_size=500)
    elif form == "csv":
        path.write_text("text,label\n" + f"{row['text']},a\n" * count)
    elif form == "json":
        path.write_text(json.dumps([row] * count))
    else:
        path.write_text(f"{json.dumps(row)}\n" * count)
    next(rows_of(path))
    tracemalloc.start()
    assert sum(1 for _ in rows_of(path)) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000 < len(row["text"]) * count


def test_names_of_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 7}\n{"id": ""}\n{"text": "a"}\n{"id": null}\n{"id": "q-1"}\n')
    assert [row.name for row in rows_of(tmp_path / "a.jsonl")] == ["7", "1", "2", "3", "q-1"]
    assert [row.named("text") for row in rows_of(tmp_path / "a.jsonl")] == ["0", "1", "a", "3", "4"]


def test_whole_decimals_keep_their_digits() -> None:
    given = {
        "id": Decimal("12345678901234567"),
        "text": Decimal("5"),
        "x": Decimal("0.5"),
        "n": Decimal("NaN"),
    }
    (row,) = rows_of([given])
    assert row.name == "12345678901234567" and row.text("text") == "5"
    assert row.fields == {"id": 12345678901234567, "text": 5, "x": 0.5, "n": None}


def test_the_index_that_pandas_writes_is_no_unnamed_column() -> None:
    (row,) = rows_of([{"": "0", "text": "a"}])
    assert row.value_or_none("") is None and row.value_or_none("text") == "a"


def test_decimals_keep_their_digits() -> None:
    (row,) = rows_of([{"a": Decimal("1234567890123456.78"), "b": Decimal("0.10")}])
    assert row.fields == {"a": "1234567890123456.78", "b": 0.1}


@pytest.mark.parametrize("depth", [300, 600, 960, 3000])
def test_lists_inside_each_other_are_read_or_refused(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "more": ' + "[" * depth + "]" * depth + "}\n")
    try:
        assert [row.get("text") for row in rows_of(path)] == ["a"]
    except DataError as error:
        assert "inside each other" in str(error) or "is not JSON" in str(error)


def test_names_of_a_file_without_them_are_cut_for_missing_answers_alone(tmp_path: Path) -> None:
    """Catches: a column that is missing elsewhere, or a first row that is broken, moves all others."""
    header = ["id", "text", "pair", "label"]

    def fields(text: str, **how: Any) -> list[dict[str, Any]]:
        path = tmp_path / "a.tsv"
        path.write_text(text)
        return [dict(row.fields) for row in rows_of(path, header=header, **how)]

    tested = fields("1\ta\tb\n", spare="label")
    assert tested == [{"id": "1", "text": "a", "pair": "b"}]
    for how in ({}, {"spare": "pair"}):
        with pytest.raises(DataError, match=r":1: has 3 fields, the file has 4 columns"):
            fields("1\ta\tb\n1\ta\tb\tx\n", **how)
    ragged = fields("1\ta\tb\n1\ta\tb\tx\n", ragged=True, spare="label")
    assert ragged == [{}, {"id": "1", "text": "a", "pair": "b", "label": "x"}]


def test_the_longest_field_that_a_program_reads_itself_stays(tmp_path: Path) -> None:
    before = csv.field_size_limit(sys.maxsize)
    try:
        assert len(list(rows_of(written(tmp_path, "csv")))) == len(ROWS)
        assert csv.field_size_limit() == sys.maxsize
    finally:
        csv.field_size_limit(before)
