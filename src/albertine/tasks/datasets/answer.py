"""Files in SQuAD's format: SQuAD v1.1, SQuADShifts, XQuAD in English, and own ones.

Known defects are mended where they can be: an answer that does not stand where the file says is looked for in
the passage; one that is not in the passage at all cannot be learned from, and only scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertine.errors import DataError
from albertine.tasks.answer import Question
from albertine.tasks.datasets.choose import whole
from albertine.tasks.tables import TaskSet, find
from albertine.text.streams import ByteStream, Limits, unpack

_LIMITS = Limits()


def squad_file(path: Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        DataError: it is not in SQuAD's format.
    """
    try:
        with path.open("rb") as file:
            text = whole(unpack(ByteStream(file, str(path)), _LIMITS))
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", where=path) from error
    try:
        tree = json.loads(text.decode("utf-8-sig"))
        for article in tree["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    yield _question(paragraph["context"], asked, str(path))
    except (UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"is not a file in SQuAD's format ({error!r:.80})", where=path) from error


def _question(passage: str, asked: dict[str, Any], where: str) -> Question:
    answers = []
    for given in asked.get("answers") or ():
        text, start = given["text"], int(given["answer_start"])
        if passage[start : start + len(text)] != text or start < 0:
            start = passage.find(text)
        answers.append((text, start))
    # The first one is learned from: let it be one that stands in the passage.
    answers.sort(key=lambda answer: answer[1] < 0)
    return Question(str(asked["id"]), asked["question"], passage, tuple(answers), where)


def _squad(**names: str) -> TaskSet[Question]:
    return TaskSet(lambda folder, split: squad_file(find(folder, names[split])), tuple(names))


ANSWERS = {"squad": _squad(train="train-v1.1.json", dev="dev-v1.1.json")}
