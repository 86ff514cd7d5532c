"""`Predictor` on a model folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import albertine
from albertine.core.batch import pack
from albertine.core.settings import read_recipe, recipe_names
from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.fill_mask import Guess
from albertine.inference.whitening import FILE, Whitening
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.families import kind_of
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from albertine.training.progress import Reporter
from tests import stand_in
from tests.inference.exports import tuned
from tests.interop.test_google import PIECES
from tests.model import builders
from tests.toy import MODEL


@pytest.fixture(scope="module")
def folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Chinese model with both heads, beside its vocabulary."""
    where = tmp_path_factory.mktemp("model") / "中文 model"
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "bert-zh-21128")
    choice = ModelChoice(preset="albert-tiny-zh", change=MODEL)
    save_model(
        Model(encoder_config(choice, tokenizer.vocab_size, 64), {"mlm", "sop"}, seed=3), tokenizer, where
    )
    return where


def test_fill_mask_agrees_with_transformers(folder: Path) -> None:
    from transformers import pipeline

    theirs = pipeline("fill-mask", model=str(folder), top_k=3)("今天天气[MASK]好。")
    ours = Predictor(folder, precision="float32").fill_mask("今天天气[MASK]好。", top_k=3)[0]
    assert [g.token_id for g in ours] == [t["token"] for t in theirs]
    assert len(Predictor(folder).fill_mask("今天天气[MASK]好。")[0]) == 5, "by default, as in transformers"
    # transformers counts special pieces among the candidates; five of 21128 shift a probability by so much
    assert [g.probability for g in ours] == pytest.approx([t["score"] for t in theirs], rel=1e-3)


def test_a_first_answer_does_not_wait_for_the_compiler(folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("the kernel of attention on a GPU needs it")
    script = (
        "import sys; from albertine.tasks.predictor import Predictor; "
        "Predictor(sys.argv[1]).fill_mask('今天[MASK]。'); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_concurrent_threads_get_the_answers_of_their_texts(folder: Path) -> None:
    """From the first call on, which prepares weights and chooses kernels."""
    texts = [f"今天{'天' * (5 * n)}[MASK]气{'好' * n}。" for n in range(8)]
    alone = Predictor(folder, precision="float32")
    expected = [alone.fill_mask(text, top_k=3)[0] for text in texts]
    together, begin = Predictor(folder, precision="float32"), threading.Barrier(len(texts))

    def answers_of(number: int) -> list[list[Guess]]:
        begin.wait()
        return [together.fill_mask(texts[(number + i) % len(texts)], top_k=3)[0] for i in range(len(texts))]

    with ThreadPoolExecutor(len(texts)) as pool:
        for number, found in enumerate(pool.map(answers_of, range(len(texts)))):
            for guesses, right in zip(found, expected[number:] + expected[:number], strict=True):
                assert [g.token_id for g in guesses] == [g.token_id for g in right]
                chances = [g.probability for g in right]
                assert [g.probability for g in guesses] == pytest.approx(chances, rel=1e-4)


def test_masks_of_many_texts_are_those_of_each_alone(folder: Path) -> None:
    """Of unequal length and number, in passes of few tokens, in the order given."""
    texts = ["今[MASK]", "北[MASK]的[MASK]天天天天天天", "[MASK]", "天气[MASK]好[MASK]今天[MASK]", "好[MASK]"]
    predictor = Predictor(folder, precision="float32", batch_tokens=16)
    together = predictor.fill_mask_all(texts, top_k=4)
    assert [len(masks) for masks in together] == [1, 2, 1, 3, 1]
    for text, masks in zip(texts, together, strict=True):
        for mask, alone in zip(masks, predictor.fill_mask(text, top_k=4), strict=True):
            assert [g.token_id for g in mask] == [g.token_id for g in alone]
            assert [g.probability for g in mask] == pytest.approx([g.probability for g in alone], rel=1e-4)
    assert len({mask[0].probability for masks in together for mask in masks}) == 8
    assert predictor.fill_mask_all([]) == []


def test_choices_apply_to_their_own_masks(folder: Path) -> None:
    """Catches: one text's choice taken for its neighbour's; chances among the choice alone; special
    pieces."""
    predictor = Predictor(folder, precision="float32")
    every = predictor.tokenizer.vocab_size
    texts = ["今[MASK]", "北[MASK]的[MASK]天", "好[MASK]"]
    free = predictor.fill_mask_all(texts, top_k=every)
    few, one = frozenset(g.token_id for g in free[1][0][3:9:2]), free[2][0][-1].token_id
    special = next(iter(predictor.tokenizer.special_ids))
    found = predictor.fill_mask_all(texts, top_k=2, among=[None, few, {one, special}])
    assert found[0] == [free[0][0][:2]]
    assert found[1] == [[g for g in mask if g.token_id in few][:2] for mask in free[1]]
    assert found[2] == [[free[2][0][-1]]]


def test_how_many_answers_is_a_number_that_can_be(pretrained: Path, tmp_path: Path) -> None:
    """Catches: -1 for all but the last."""
    predictor, texts = Predictor(pretrained), ["the [MASK]", "he [MASK]"]
    calls: tuple[tuple[dict[str, Any], str], ...] = (
        ({"top_k": 0}, "top_k is a whole number from 1, not 0"),
        ({"top_k": -1}, "not -1"),
        ({"top_k": 1.5}, r"not 1\.5"),
        ({"top_k": [1, -2]}, "not -2"),
        ({"top_k": [1]}, "top_k has 1 parts for 2 texts"),
        ({"among": [{9}]}, "among has 1 parts for 2 texts"),
    )
    for how, message in calls:
        with pytest.raises(SettingsError, match=message):
            predictor.fill_mask_all(texts, **how)
    assert len(predictor.fill_mask("the [MASK]", top_k=np.int64(2))[0]) == 2
    rows = [{"text": f"a {word} man", "label": word} for word in ("good", "bad")]
    quiet = {"reporter": Reporter(quiet=True), "watching": {"tensorboard": False, "report": False}}
    done = albertine.finetune(pretrained, train=rows, output=tmp_path, training={"steps": 1}, **quiet)
    for top in (-1, "1"):
        with pytest.raises(SettingsError, match="top is a whole number from 0, not"):
            next(Predictor(done.model).predict(["a man"], top=top))


def test_every_mask_is_answered_in_order(folder: Path) -> None:
    predictor = Predictor(folder)
    both = predictor.fill_mask("北[MASK]的[MASK]天", top_k=2)
    assert len(both) == 2
    assert all(len(guesses) == 2 for guesses in both)
    assert all(guesses[0].probability >= guesses[1].probability for guesses in both)


@pytest.mark.parametrize("limit", [None, 8])
def test_sentence_order_is_the_same_alone_and_together(folder: Path, limit: int | None) -> None:
    predictor = Predictor(folder, batch_tokens=limit)
    pairs = [("他来了。", "他走了，再也没有回来。"), ("天黑了。", "灯亮了。")]
    together = predictor.sentence_order(pairs)
    alone = [predictor.sentence_order([pair])[0] for pair in pairs]
    assert together == pytest.approx(alone, abs=1e-6)
    assert all(0 < p < 1 for p in together)


def test_what_is_computed_at_once_is_bounded(folder: Path) -> None:
    texts = ["他来了。", "他走了，再也没有回来。", "天", "黑了。灯亮了。"] * 3
    predictor, sizes = Predictor(folder, batch_tokens=32, precision="float32"), list[int]()
    words = predictor.model.encoder.embeddings.word
    words.register_forward_pre_hook(lambda layer, given: sizes.append(given[0].numel()))
    whole = Predictor(folder, precision="float32")
    np.testing.assert_allclose(predictor.embed(texts), whole.embed(texts), atol=1e-5)
    pairs = list(zip(texts, reversed(texts), strict=True))
    assert predictor.sentence_order(pairs) == pytest.approx(whole.sentence_order(pairs), abs=1e-5)
    together = Predictor(folder, batch_tokens=1, precision="float32").embed(texts[:2])  # each goes alone
    np.testing.assert_allclose(together, whole.embed(texts[:2]), atol=1e-5)
    assert max(sizes) <= 32 and len(sizes) > 8
    with pytest.raises(SettingsError, match="Leave batch_tokens out"):
        Predictor(folder, batch_tokens=0)


def test_what_a_model_cannot_answer_is_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \[MASK\]"):
        Predictor(folder).fill_mask("没有")
    tokenizer = load_tokenizer(folder)
    config = encoder_config(ModelChoice(preset="albert-tiny-zh", change=MODEL), tokenizer.vocab_size, 64)
    save_model(Model(config, {"pooler"}), tokenizer, tmp_path / "plain")
    with pytest.raises(ModelError, match="no masked-LM head"):
        Predictor(tmp_path / "plain").fill_mask("[MASK]")
    with pytest.raises(ModelError, match="no sentence head"):
        Predictor(tmp_path / "plain").sentence_order([("a", "b")])


def test_a_sentence_head_alone_predicts_the_order(tmp_path: Path) -> None:
    """As in transformers' BertForNextSentencePrediction."""
    whole, tokenizer = builders.model(), WordPieceTokenizer(PIECES)
    alone = Model(whole.config, {"sop"})
    alone.load_state_dict(whole.state_dict(), strict=False)
    pairs = [("a b", "c a b"), ("b", "a a c")]
    chances = []
    for name, model in (("whole", whole), ("alone", alone)):
        save_model(model, tokenizer, tmp_path / name)
        chances.append(Predictor(tmp_path / name, precision="float32").sentence_order(pairs))
    assert chances[0] == pytest.approx(chances[1], abs=1e-6) and chances[0][0] != chances[0][1]


def test_a_classifier_whose_pooler_is_not_there_is_refused(tmp_path: Path) -> None:
    """As of transformers' RoFormer for choices, which looks at the last token. Catches: a message for those
    who build a model."""
    file = tuned("single", tmp_path / "m") / "model.safetensors"
    save_file({name: x for name, x in load_file(file).items() if "pooler" not in name}, file)
    with pytest.raises(ModelError, match="no pooler that it could look at") as caught:
        Predictor(tmp_path / "m").classify("who")
    assert caught.value.where == tmp_path / "m"


def test_the_error_of_no_model_does_not_suggest_a_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\n")
    (tmp_path / "manifest.json").write_text("{}")
    for path, message in ((tmp_path / "a.csv", "is not a folder"), (tmp_path, r"config\.json: is missing")):
        with pytest.raises(ModelError, match=rf"{message}. Name the folder that holds config\.json"):
            Predictor(path)


def test_a_tokenizer_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    small = encoder_config(ModelChoice(preset="albert-tiny-zh", change=MODEL), 100, 64)
    save_model(Model(small, {"mlm"}), None, tmp_path / "other")
    load_tokenizer(folder).save(tmp_path / "other")
    with pytest.raises(ModelError, match="21128"):
        Predictor(tmp_path / "other")


def test_precision_changes_little(folder: Path) -> None:
    full = Predictor(folder, precision="float32").fill_mask("今[MASK]", top_k=1)[0][0]
    half = Predictor(folder, precision="bfloat16").fill_mask("今[MASK]", top_k=1)[0][0]
    assert half.probability == pytest.approx(full.probability, rel=0.05)


def test_every_token_can_be_predicted_except_special_ones(tmp_path: Path) -> None:
    predictor = Predictor(stand_in.put(tmp_path, "en"), precision="float32")
    (guesses,) = predictor.fill_mask("the [MASK] sat", top_k=10**6)
    special = predictor.tokenizer.special_ids
    assert len(guesses) == predictor.tokenizer.vocab_size - len(special)
    assert not {guess.token_id for guess in guesses} & set(special)
    assert sum(guess.probability for guess in guesses) == pytest.approx(1)


def test_the_fingerprint_is_of_everything_that_decides_an_answer(tmp_path: Path) -> None:
    folder = stand_in.put(tmp_path, "en")
    known = [Predictor(folder, precision=name).fingerprint for name in ("float32", "bfloat16")]  # type: ignore[arg-type]
    assert Predictor(folder, precision="float32").fingerprint == known[0]
    vocabulary, size = folder / "vocab.txt", load_tokenizer(folder).vocab_size
    for change in (
        lambda: vocabulary.write_text(vocabulary.read_text().replace("cat", "dog")),
        lambda: (folder / "config.json").write_text((folder / "config.json").read_text() + " "),
        lambda: save_model(stand_in.rotary_model(size, seed=2), load_tokenizer(folder), folder),
    ):
        change()
        known.append(Predictor(folder, precision="float32").fingerprint)
    assert len(set(known)) == len(known)
    (folder / "evaluation").mkdir()
    (folder / "evaluation" / "report.json").write_text("{}")
    assert Predictor(folder, precision="float32").fingerprint == known[-1]


def test_a_predictor_keeps_what_its_folder_held(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the start: neither another working directory nor deleting the folder changes vectors."""
    shutil.copytree(pretrained, tmp_path / "mine")
    size = MODEL["hidden_size"]
    made = Whitening(1, torch.zeros(size), torch.eye(size)[:, :5].contiguous())
    (tmp_path / "mine" / FILE).write_bytes(made.to_bytes())
    monkeypatch.chdir(tmp_path)
    early, late = Predictor("mine"), Predictor("mine")
    expected, name = early.embed("the old man"), early.fingerprint
    assert expected.shape == (1, 5)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert late.fingerprint == name
    shutil.rmtree(tmp_path / "mine")
    np.testing.assert_array_equal(late.embed("the old man"), expected)
    with pytest.raises(ModelError, match="is gone"):
        _ = late.fingerprint


def test_texts_come_in_any_column(pretrained: Path) -> None:
    """Of every library; a table, a mapping and what is no text are refused by name."""
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    predictor, texts = Predictor(pretrained, precision="float32"), ["the old man", "he said that"]
    expected, table = predictor.embed(texts), datasets.Dataset.from_dict({"text": texts})
    columns = (pd.Series(texts), np.array(texts), pa.array(texts), pa.chunked_array([texts]), table["text"])
    for column in (*columns, tuple(texts), iter(texts)):
        np.testing.assert_array_equal(predictor.embed(column), expected)
    for given, message in (
        (pd.Series(["a", None]), r"^texts\[1\]: is empty, not text"),
        (["a", 3], r"^texts\[1\]: is a number, not text"),
        (["a", "\udcbb\udcca"], r"^texts\[1\]: has half of a character .*'.udcbb'"),
        ([("a", "b")], r"^texts\[0\]: is a list, not text"),
        (pd.DataFrame({"text": texts}), "^texts: a DataFrame has columns"),
        (pa.table({"text": texts}), "^texts: a Table has columns"),
        (table, "^texts: a Dataset has columns"),
        ({"text": texts}, "^texts: a dict has columns"),
        (None, "^texts: is empty, not a list of texts"),
    ):
        with pytest.raises(DataError, match=message):
            predictor.embed(given)
    with pytest.raises(DataError, match=r"^texts\[0\]: is a number"):
        predictor.fill_mask_all([1])
    assert predictor.sentence_order(pd.Series([tuple(texts)])) == predictor.sentence_order([tuple(texts)])
    with pytest.raises(DataError, match=r"^pairs\[0\]: is text, not a pair of texts"):
        predictor.sentence_order(texts)
    with pytest.raises(DataError, match=r"^pairs\[1\]: has half of a character"):
        predictor.sentence_order([("a", "b"), ("a", "b\ud800")])
    with pytest.raises(DataError, match=r"^pairs\[1\]\[1\]: is empty, not text"):
        predictor.sentence_order([("a", "b"), ("a", None)])  # type: ignore[list-item]
    with pytest.raises(DataError, match=r"^pairs\[0\]: is a list, not a pair of texts"):
        predictor.sentence_order([("a", "b", "c")])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("classify", "texts"),
        ("embed", "texts"),
        ("fill_mask_all", "texts"),
        ("likely_spans", "asked"),
        ("read", "passages"),
        ("relate_all", "texts"),
        ("sentence_order", "pairs"),
        ("similarity", "a"),
        ("tag_all", "texts"),
    ],
)
def test_the_types_of_texts_allow_an_array_and_a_column(method: str, name: str) -> None:
    """Which type checkers do not take for sequences."""
    hint = get_type_hints(getattr(Predictor, method))[name]
    assert Iterable in {get_origin(one) for one in (hint, *get_args(hint))}


def test_whitened_vectors_under_autocast(pretrained: Path, tmp_path: Path) -> None:
    """Equal the model's states in that format, whitened in float32."""
    shutil.copytree(pretrained, tmp_path / "mine")
    size = MODEL["hidden_size"]
    (tmp_path / "mine" / FILE).write_bytes(Whitening(1, torch.zeros(size), torch.eye(size)).to_bytes())
    predictor, texts = Predictor(tmp_path / "mine", precision="float32"), ["the old man", "he said that"]
    expected = predictor.embed(texts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = predictor.embed(texts)
    assert found.dtype == np.float32 and not np.array_equal(found, expected)
    np.testing.assert_allclose(found, expected, atol=0.05)
    rounded = torch.from_numpy(found).bfloat16().float().numpy()
    assert not np.array_equal(found, rounded)


def test_the_order_of_two_passages_is_the_chance_of_the_first_label(pretrained: Path) -> None:
    predictor = Predictor(pretrained, precision="float32")
    model, tokenizer = predictor.model, predictor.tokenizer
    assert isinstance(model, Model) and model.sentence is not None
    pair = ("the old man", "he said that it was good")
    with torch.no_grad():  # label 0: in order
        model.sentence.classifier.bias.copy_(torch.tensor([2.0, 0.0]))
    with torch.inference_mode():
        ids, types = tokenizer.layout(*map(tokenizer.encode, pair))
        logits = model.pretraining_forward(pack([ids], [types]), torch.empty(0, dtype=torch.long))[1]
    assert logits is not None
    (found,) = predictor.sentence_order([pair])
    assert found == pytest.approx(float(logits.softmax(-1)[0, 0]), abs=1e-5) and found > 0.6


def test_not_all_masks_are_held_at_once(pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from albertine.inference import pretraining_heads

    plain, held = pretraining_heads.masked_token_logits, list[int]()

    def counted(model: Any, rows: Any, types: Any, places: Any) -> Any:
        held.append(sum(map(len, places)))
        return plain(model, rows, types, places)

    monkeypatch.setattr(pretraining_heads, "masked_token_logits", counted)
    found = Predictor(pretrained, precision="float32").fill_mask_all(["the [MASK]"] * 2500, top_k=1)
    assert len(found) == sum(held) == 2500 and max(held) <= 1024


def test_a_table_is_read_by_the_arguments_that_errors_name(tmp_path: Path) -> None:
    """Catches: options of the command in errors of Python; an encoding or header that only they can name."""
    single, pairs, choose = (
        Predictor(tuned(n, tmp_path / n), precision="float32") for n in ("single", "compared", "choose")
    )

    def written(name: str, text: str, encoding: str = "utf-8") -> Path:
        (tmp_path / name).write_text(text, encoding=encoding)
        return tmp_path / name

    foreign = written("gb.csv", "text\n今天天气很好，很好\n", "gb18030")
    bare = written("bare.csv", "the old man 1\na house 2\n")
    other = written("other.csv", "review\nthe old man\n")
    for predictor, source, wanted in (
        (single, foreign, "pass encoding=gb18030"),
        (single, other, r"Name it: text=COLUMN$"),
        (single, written("numbers.csv", "1,2\nthe old man,3\n"), "Name it: text=COLUMN; or header=False"),
        (pairs, [{"text": "a house"}], r"a tuple or pair=COLUMN in Python$"),
        (choose, [{"text": "a house"}], r"Name it: options=COLUMN$"),
        (Predictor(tuned("answer", tmp_path / "answer")), other, r"Name it: (text|pair)=COLUMN$"),
    ):
        with pytest.raises(DataError, match=wanted) as caught:
            list(predictor.predict(source))
        assert "--text" not in str(caught.value) and "--no-header" not in str(caught.value)
    assert [row["text"] for row in single.predict(foreign, encoding="gb18030")] == ["今天天气很好，很好"]
    answers = [row["prediction"] for row in single.predict(bare, text=1, header=False)]
    assert answers == [row["prediction"] for row in single.predict(["the old man 1", "a house 2"])]
    named = list(single.predict(bare, text="words", header=["words"]))
    assert [row["words"] for row in named] == ["the old man 1", "a house 2"]


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("choose", ("a man", ["x", "y"]), "choice"),
        ("classify", ("a man",), "single"),
        ("tag", ("a man",), "entities"),
        ("read", ("who", "a man"), "reading"),
        ("relate", ("a man",), "relations"),
    ],
)
def test_the_error_of_an_untuned_model_names_how_to_tune_one(
    folder: Path, method: str, arguments: tuple[Any, ...], kind: str
) -> None:
    with pytest.raises(
        ModelError, match=f"was not tuned for a task.*finetune with task.kind={kind}"
    ) as caught:
        getattr(Predictor(folder), method)(*arguments)
    recipe = re.search(r"the recipe (finetune/\S+) is one", str(caught.value))
    assert recipe is not None and recipe[1] in recipe_names()
    task = read_recipe(Path(recipe[1]))["task"]
    assert kind_of(task) == kind
