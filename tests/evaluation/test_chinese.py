"""The scores of Chinese answers against cases worked out by the rules of the official scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from albertine.evaluation.answer_matching import MatchRules
from albertine.evaluation.answer_scores import ANSWER_METRICS, AnswerDecision
from albertine.evaluation.chinese import CMRC, DUREADER, MLQA, longest_run, score
from albertine.evaluation.treebank import words
from albertine.tasks.dataset_registry import named
from albertine.tasks.datasets.answer import squad_file


@pytest.mark.parametrize(
    ("rules", "text", "plain"),
    [
        (CMRC, " ABC，《北京》。 ", "abc北京"),
        (CMRC, "a-b:c_d*e^f/g\\h~i`j+k=l", "abcdefghijkl"),
        (CMRC, "“是”；’否‘", "是否‘"),  # the opening single quote is not in the list
        (CMRC, "等……", "等……"),  # nor is the ellipsis, as it is meant
        (CMRC, 'a.b,c?d!(e)"f"', 'a.b,c?d!(e)"f"'),  # nor the ASCII marks
        (CMRC, "２００２ 年", "２００２ 年"),  # full-width digits and inner white space stay
        (CMRC, "\u3000北京\u3000", "北京"),
        (DUREADER, " (北京), a-b|c ", " 北京 a-bc "),  # another list, and nothing is stripped
        (MLQA, "《北京》, A $5.00！", "北 京 a 500"),
        (MLQA, "New York  市", "new york 市"),
    ],
)
def test_a_text_as_it_is_compared(rules: MatchRules, text: str, plain: str) -> None:
    assert rules.plain(text) == plain


@pytest.mark.parametrize(
    ("rules", "deleted"),
    [
        (CMRC, "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』"),
        (DUREADER, ":_`，。：？！()“”；’《》·、,「」（）－～『』|"),
    ],
)
def test_every_mark_of_the_script_is_deleted_alone(rules: MatchRules, deleted: str) -> None:
    assert [mark for mark in deleted if rules.plain(f"北{mark}京") != "北京"] == []


@pytest.mark.parametrize(
    ("rules", "text", "tokens"),
    [
        (CMRC, "北京2008年olympic games", ["北", "京", "2008", "年", "olympic", "games"]),
        (CMRC, "3.5%的人", ["3.5", "%", "的", "人"]),
        (CMRC, "１２年", ["１２", "年"]),
        (CMRC, "の", ["の"]),
        (CMRC, "", []),
        (DUREADER, "北京new york=3", ["北", "京", "new york", "=", "3"]),
        (DUREADER, "𠀀豈龥鿿", ["𠀀", "豈", "龥", "鿿"]),
        (CMRC, "鿿", ["鿿"]),
    ],
)
def test_tokens(rules: MatchRules, text: str, tokens: list[str]) -> None:
    assert list(rules.tokens(rules.plain(text))) == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("good muffins cost $3.88 in new york.", "good muffins cost $ 3.88 in new york ."),
        ("they're john's; don't!", "they 're john 's ; do n't !"),
        ('he said "no" (twice)', "he said `` no '' ( twice )"),
        ('"so"', "`` so ''"),
        ("1,000 or a,b and 12:30 c:d", "1,000 or a , b and 12:30 c : d"),
        ("wait... what?", "wait ... what ?"),
        ("a–b c@d", "a – b c @ d"),
        ("i cannot, gonna", "i can not , gon na"),
        ("cannot", "can not"),
        ("the students' and 'tis rock 'n' roll", "the students ' and ' tis rock 'n ' roll"),
        ("«oui»", "« oui »"),
        ("mr. smith went. he left", "mr. smith went . he left"),
        ("j. k. rowling", "j. k. rowling"),
        ("u.s. army no. 5", "u.s. army no. 5"),
        ("u.s.", "u.s ."),
        ("x (y.)", "x ( y . )"),
        ("   ", ""),
    ],
)
def test_words_of_the_treebank(text: str, tokens: str) -> None:
    assert list(words(text)) == tokens.split()


def test_the_longest_run_is_that_of_the_table() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        a, b = (list(map(str, rng.integers(0, 3, rng.integers(0, 9)))) for _ in range(2))
        table = np.zeros((len(a) + 1, len(b) + 1), dtype=int)
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1, j + 1] = table[i, j] + 1 if x == y else 0
        assert longest_run(a, b) == table.max()


def test_one_answer_by_the_rules_of_cmrc() -> None:
    assert CMRC.exact("《北京》", "北京。") == 1 and CMRC.exact("北京", "北 京") == 0
    # Of five and four tokens the longest common run is two: 北京 or 大学, not the three of a subsequence.
    assert CMRC.f1("北京的大学", "北京大学") == pytest.approx(2 * (2 / 4) * (2 / 5) / (2 / 4 + 2 / 5))
    assert CMRC.f1("2008年", "2009年") == pytest.approx(0.5)  # a number is one token
    assert CMRC.f1("。", "，") == 0 and CMRC.exact("。", "，") == 1  # nothing is left of both
    assert CMRC.f1("北京", "") == 0 and CMRC.exact("北京", "") == 0


def test_one_answer_by_the_rules_of_mlqa() -> None:
    # Bags, not runs: all four of 北京大学 are among the five.
    assert MLQA.f1("北京的大学", "北京大学") == pytest.approx(8 / 9)
    assert MLQA.exact("《北京》！", "北京") == 1
    assert MLQA.exact("the end", "end") == 0  # Chinese has no articles to drop
    assert MLQA.f1("", "") == 0 and MLQA.exact("", "") == 1


def test_a_question_has_its_best_gold_and_a_missing_one_counts() -> None:
    gold = {"1": ["北京", "北京大学"], "2": ["上海"], "3": ["广州"]}
    scores = score(gold, {"1": "北京大学", "2": "上海市", "9": "x"}, CMRC)
    assert scores["exact"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(100 * (1 + 4 / 5) / 3)
    assert scores["average"] == pytest.approx((scores["exact"] + scores["f1"]) / 2)
    assert (scores["total"], scores["skipped"]) == (3, 1)
    with pytest.raises(ValueError, match="nothing to score"):
        score({}, {}, CMRC)


def test_the_same_by_name() -> None:
    gold, predictions = [["北京", "北京大学"], ["上海"]], ["北京大学", "上海市"]
    assert ANSWER_METRICS["cmrc_exact"](gold, predictions) == 0.5
    assert ANSWER_METRICS["cmrc_f1"](gold, predictions) == pytest.approx(0.9)
    assert ANSWER_METRICS["cmrc_average"](gold, predictions) == pytest.approx(0.7)
    assert ANSWER_METRICS["dureader_f1"](gold, predictions) == pytest.approx(0.9)
    assert ANSWER_METRICS["mlqa_f1"](gold, predictions) == pytest.approx(0.9)
    with pytest.raises(ValueError, match="2 questions and 1 predictions"):
        ANSWER_METRICS["cmrc_f1"](gold, predictions[:1])
    decided = [
        AnswerDecision("cat", 0.1, "cat"),
        AnswerDecision("dog", 0.9, ""),
        AnswerDecision("owl", 0.4, ""),
    ]
    gold = [["cat"], [], ["owl"]]
    assert ANSWER_METRICS["squad2_f1"](gold, decided) == pytest.approx(2 / 3)
    assert ANSWER_METRICS["squad2_best_f1"](gold, decided) == 1  # at a threshold between 0.4 and 0.9


def test_answers_that_may_not_be_there_are_compared_by_the_rules_that_are_named() -> None:
    """As SQuAD v2.0 counts them: where nothing is left of both, they agree."""
    gold = [["北京大学"], [], ["《上海》"], ["。"]]
    predictions = [AnswerDecision(text, 0.1, text) for text in ("北京", "", "上海", "，")]
    for rules in ("cmrc", "dureader", "mlqa"):
        by = f"squad2_by_{rules}"
        assert ANSWER_METRICS[f"{by}_f1"](gold, predictions) == pytest.approx((2 / 3 + 3) / 4)
        assert ANSWER_METRICS[f"{by}_best_f1"](gold, predictions) == pytest.approx((2 / 3 + 3) / 4)
        assert (
            ANSWER_METRICS[f"{by}_exact"](gold, predictions)
            == ANSWER_METRICS[f"{by}_best_exact"](gold, predictions)
            == 0.75
        )
    assert ANSWER_METRICS["squad2_f1"](gold, predictions) == 0.25


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("cmrc2018", "cmrc2018/dev.json.xz"),
        ("drcd", "drcd/DRCD_dev.json.xz"),
        ("dureader-robust", "dureader_robust/dev.json.xz"),
        ("xquad-zh", "xquad/xquad.zh.json.xz"),
    ],
)
def test_real_gold_answers_score_a_hundred(shared_data: Path, name: str, path: str) -> None:
    rules = {"cmrc": CMRC, "dureader": DUREADER, "mlqa": MLQA}[named(name).rules]
    gold = {q.name: [text for text, _ in q.answers or ()] for q in squad_file(shared_data / path)}
    first = score(gold, {n: texts[0] for n, texts in gold.items()}, rules)
    assert first["exact"] == first["f1"] == 100 and first["skipped"] == 0
    longer = score(gold, {n: f"在{texts[0]}" for n, texts in gold.items()}, rules)
    assert longer["exact"] < 40 and longer["exact"] < longer["f1"] < 100
