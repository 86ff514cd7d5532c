"""Words of CoNLL's files as texts: where a blank stands between them."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from albertine.errors import DataError
from albertine.tasks.readers.conll import sentences, spaced

JOINED = {
    "words of English": ("I saw “ New York ” .", "I saw “ New York ” ."),
    "single letters": ("a b", "a b"),
    "words of Chinese": ("他们 在 北京 。", "他们在北京。"),
    "a foreign word": ("我 love 你", "我love你"),
    "foreign words stay apart": ("in New York 的 2018 年", "in New York的2018年"),
    "marks": ("他 说 ： “ New York ” ， OK （ NBA ） ！ OK 3", "他说：“New York”，OK（NBA）！OK 3"),
    "a mark at a border": ("OK。 NBA", "OK。NBA"),
    "full-width forms": ("Ａ b", "Ａb"),
    "characters": (" ".join("在2018年看NBA,好!"), "在2018年看NBA,好!"),
    "a character outside the first plane": ("𠮷 N B A", "𠮷NBA"),
}


@pytest.mark.parametrize("name", JOINED)
def test_no_space_is_put_beside_chinese_nor_in_a_text_of_characters(name: str) -> None:
    words, text = JOINED[name][0].split(), JOINED[name][1]
    found, starts = spaced(words)
    assert found == text
    assert [found[at : at + len(word)] for at, word in zip(starts, words, strict=True)] == words


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16"])
def test_a_file_with_the_mark_of_utf_8_is_read_as_that(tmp_path: Path, encoding: str) -> None:
    path, text = tmp_path / "a.bio", "北 B-x\n京 I-x\n"
    for content in (codecs.BOM_UTF8 + text.encode(), text.encode(encoding)):
        path.write_bytes(content)
        (row,) = sentences(path, encoding)
        assert row.words == ["北", "京"]


def test_only_spaces_and_tabs_part_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.bio"
    path.write_text("10\u00a0000 B-x\neuros O\n\n中\tO\n\u3000\tO\n国\tO\n", encoding="utf-8")
    words = [row.words for row in sentences(path)]
    assert words == [["10\u00a0000", "euros"], ["中", "\u3000", "国"]]


@pytest.mark.parametrize("between", [" ", "\t"])
def test_a_blank_between_characters_is_one_of_them(tmp_path: Path, between: str) -> None:
    text, tags = "在 New York。", ["O", "O", "B-x", *["I-x"] * 7, "O"]
    path = tmp_path / "a.bio"
    path.write_text("\n".join(map(between.join, zip(text, tags, strict=True))), encoding="utf-8")
    (row,) = sentences(path)
    assert (row.words, row.tags, spaced(row.words)[0]) == (list(text), tags, text)


def test_no_second_space_is_put_beside_one_of_the_file() -> None:
    assert spaced(["New", " ", "York", "的"]) == ("New York的", [0, 3, 4, 8])


@pytest.mark.parametrize(
    ("one", "other", "what"), [("B-PER", "B", "names no type"), ("I", "S-PER", "names a type")]
)
def test_tags_with_and_without_a_type_in_one_file_are_refused(
    tmp_path: Path, one: str, other: str, what: str
) -> None:
    (path := tmp_path / "a.txt").write_text(f"a O\nb {one}\n\nc O\nd {other}\n")
    named = rf"a\.txt:5: the tag `{other}` {what}, and `{one}` in .*a\.txt:2 "
    with pytest.raises(DataError, match=named):
        list(sentences(path))


def test_tags_may_name_no_type(tmp_path: Path) -> None:
    """As seqeval has it, their type is "_"."""
    path = tmp_path / "a.conll"
    path.write_text("# a comment I\nhe B\nwas I\n# B\nold O\n\nman S\ntime L\n", encoding="utf-8")
    one, two = sentences(path)
    assert (one.words, one.tags) == (["he", "was", "#", "old"], ["B-_", "I-_", "B-_", "O"])
    assert two.tags == ["S-_", "E-_"]
