"""Every task family, pooling and layout: transformers computes the numbers of a tuned folder, or refuses."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from albertine.cli.app import run
from albertine.core.batch import Packed
from albertine.errors import SettingsError
from albertine.inference.windows import WindowSettings
from albertine.interop.huggingface.config import model_type
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import TaskModel
from albertine.tasks.answer import Answer
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.classify import Classify
from albertine.tasks.embed import Embed
from albertine.tasks.families import family_of, tuned_model
from albertine.tasks.family import Family, OneLayer
from albertine.tasks.finetune import save_tuned
from albertine.tasks.multiple_choice import Choose
from albertine.tasks.predictor import Predictor
from albertine.tasks.relate import Relate
from albertine.tasks.tag import Tag
from albertine.tokenizers.train import train_sentencepiece
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop import test_modernbert, test_xlnet
from tests.interop.test_roformer import PIECES
from tests.model import builders

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BOUND = 1e-4
WIDE: dict[str, Any] = {"embedding_size": 24, "plan": SharingPlan.unshared(2)}
LAYOUTS: dict[str, dict[str, Any]] = {
    "albert": {},
    "bert": WIDE,
    "roformer": {"plan": SharingPlan.unshared(2), "positions": "rotary", "hidden_act": "gelu"},
    "modernbert": WIDE | test_modernbert.BLOCK,
    "xlnet": WIDE | test_xlnet.BLOCK,
    "albertine": {"positions": "rotary", "hidden_act": "gelu"},
}
NAMES = ("a", "b", "c")
TAGS = ("O", "B-x", "I-x")
READING = WindowSettings(max_length=32, question=8)
FAMILIES: dict[str, Family] = {
    **{
        f"{kind} {pooling}": Classify(kind, () if kind == "score" else NAMES, (), 32, pooling=pooling)  # type: ignore[arg-type]
        for kind in ("single", "multi", "score")
        for pooling in ("cls", "mean", "depths", "compared")
    },
    **{f"choice {pooling}": Choose(32, pooling=pooling) for pooling in ("cls", "mean", "depths")},  # type: ignore[arg-type]
    "tags": Tag(TAGS, 32),
    "tags crf": Tag(TAGS, 32, crf=True),
    "answers": Answer(reading=READING),
    "answers or none": AnswerOrNot(reading=READING),
    "relations": Relate(NAMES, 32),
}
AUTO = {
    "single": transformers.AutoModelForSequenceClassification,
    "multi": transformers.AutoModelForSequenceClassification,
    "score": transformers.AutoModelForSequenceClassification,
    "choice": transformers.AutoModelForMultipleChoice,
    "tags": transformers.AutoModelForTokenClassification,
    "answers": transformers.AutoModelForQuestionAnswering,
}
POOLED = ("single cls", "multi cls", "score cls", "choice cls")
OF_TOKENS = ("tags", "answers")
COMPUTED = {
    "albert": (*POOLED, *OF_TOKENS),
    "bert": (*POOLED, *OF_TOKENS),
    "roformer": ("choice cls", *OF_TOKENS),
    "electra": ("choice cls", *OF_TOKENS),
    "modernbert": (),
    "xlnet": (*POOLED, *OF_TOKENS, "answers or none"),
}
"""What a class of transformers computes; everything else it must refuse."""
LENGTHS = [3, 4, 6, 7, 9, 11, 14, 17, 20, 24, 28, 32]


def tuned(layout: str, family: Family) -> TaskModel:
    """A model with a head, all of it away from its initial values."""
    config = builders.config(**({"vocab_size": len(PIECES)} | LAYOUTS[layout]))
    head = family.build(Model(config, family.heads, seed=3), 0.0, 4).eval()
    noise = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=noise))
    return head


def rows(model: Model) -> Packed:
    packed = builders.packed(LENGTHS, seed=7)
    limit = model.config.vocab_size
    types = packed.token_type_ids * (model.config.type_vocab_size > 1)
    return replace(packed, input_ids=packed.input_ids % (limit - 5) + 5, token_type_ids=types)


def padded(packed: Packed, *, left: bool) -> dict[str, Tensor]:
    ids, mask, types = builders.padded(packed)
    if left:
        for x in (ids, mask, types):
            for row, length in enumerate(packed.lengths):
                x[row] = x[row].roll(x.shape[1] - length)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


@torch.no_grad()
def numbers(model: TaskModel, packed: Packed) -> Tensor:
    return model(packed)  # type: ignore[no-any-return]


@torch.no_grad()
def their_numbers(folder: Path, name: str, packed: Packed, kind: str) -> Tensor:
    """What the class that a folder names computes, of real tokens alone."""
    task = name.split()[0]
    cls = AUTO[task]
    theirs, loading_info = cls.from_pretrained(folder, output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["mismatched_keys"], loading_info
    assert theirs.config.architectures == [type(theirs).__name__]
    batch = padded(packed, left=kind == "xlnet")
    if kind == "modernbert":
        del batch["token_type_ids"]
    real = batch["attention_mask"].bool()
    if task == "choice":
        batch = {key: x[None] for key, x in batch.items()}
        return theirs.eval()(**batch).logits[0][:, None]  # type: ignore[no-any-return]
    out = theirs.eval()(**batch)
    if task == "answers":
        return torch.stack([out.start_logits, out.end_logits], -1)[real]
    return out.logits[real] if task == "tags" else out.logits  # type: ignore[no-any-return]


@torch.no_grad()
def check_joint_head(table: Tensor, folder: Path, packed: Packed) -> None:
    """The likeliest spans and whether there is no answer, of rows that have as many tokens as spans."""
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["XLNetForQuestionAnswering"]
    theirs, loading_info = transformers.XLNetForQuestionAnswering.from_pretrained(
        folder, output_loading_info=True
    )
    assert not loading_info["missing_keys"] and not loading_info["mismatched_keys"]
    batch = padded(packed, left=True)
    types, last = batch["token_type_ids"], batch["attention_mask"].shape[1] - 1
    inside = (types == 0) & (types.roll(-1, 1) == 0) & batch["attention_mask"].bool()
    inside[:, last] = True
    out = theirs.eval()(**batch, p_mask=1.0 - inside.float())
    assert (out.cls_logits - table[:, -1]).abs().max() <= BOUND
    starts = out.start_top_log_probs.log()[:, None]  # which they give as probabilities, in spite of the name
    scores = (starts + out.end_top_log_probs.log().view(len(table), 5, 5)).transpose(1, 2).flatten(1)
    # Of masked tokens they give a probability of zero.
    seen = scores.isfinite()
    assert seen.any(1).all()
    assert (scores - table[:, 50:75])[seen].abs().max() <= BOUND


@pytest.mark.sample(30)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "albertine"])
@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_computes_it_or_refuses(layout: str, name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = tuned(layout, family)
    packed = rows(model.base)
    tokenizer = WordPieceTokenizer(PIECES)
    save_tuned(model, tokenizer, family, tmp_path)
    tree = json.loads((tmp_path / "config.json").read_text())
    assert tree["model_type"] == model_type(model.base.config) == layout
    check_read_back(model, tmp_path, tokenizer, name, packed)
    if name in COMPUTED[layout]:
        if name == "answers or none":
            check_joint_head(numbers(model, packed), tmp_path, packed)
            return
        ours, theirs = numbers(model, packed), their_numbers(tmp_path, name, packed, layout)
        assert (ours - theirs).abs().max() <= BOUND
        labels = list(getattr(family, "labels", ())) or (["score"] if name.startswith("score") else [])
        assert list(tree.get("id2label", {}).values()) == labels
        return
    assert tree["architectures"][0].startswith("Albertine")
    assert not {"id2label", "label2id", "problem_type", "num_labels"} & tree.keys()
    if (auto := AUTO.get(name.split()[0])) is not None:
        with pytest.raises((RuntimeError, ValueError)):
            auto.from_pretrained(tmp_path)
    encoder, loading_info = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading_info["mismatched_keys"]
    batch = padded(packed, left=layout == "xlnet")
    if layout == "modernbert":
        del batch["token_type_ids"]
    with torch.no_grad():
        state = encoder.eval()(**batch).last_hidden_state[batch["attention_mask"].bool()]
        assert (state - model.base.encoder(packed).last_hidden).abs().max() <= BOUND


def check_read_back(
    model: TaskModel, folder: Path, tokenizer: WordPieceTokenizer, name: str, packed: Packed
) -> None:
    """Albertine gives the same numbers from the folder as before, with the same labels."""
    found = read_folder(folder)
    family = family_of(found, tokenizer, folder)
    again = tuned_model(found, family, folder)
    assert family.labels == FAMILIES[name].labels
    if isinstance(FAMILIES[name], OneLayer):
        assert (numbers(again, packed) - numbers(model, packed)).abs().max() <= 1e-6
    for key, x in model.head.items():
        assert torch.equal(again.head[key], x), key


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_of_albertines_own_layout(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = tuned("albertine", family)
    save_tuned(model, WordPieceTokenizer(PIECES), family, tmp_path / "m")
    check_read_back(model, tmp_path / "m", WordPieceTokenizer(PIECES), name, rows(model.base))
    with pytest.raises(ValueError, match="albertine"):
        transformers.AutoModel.from_pretrained(tmp_path / "m")
    found = read_folder(tmp_path / "m")
    how: dict[str, Any] = {"extra_tensors": found.extra, "extra_config": family.config("roformer", 0.1)}
    if name not in COMPUTED["roformer"]:
        with pytest.raises(SettingsError, match="no class that computes the head"):
            save_model(found.model, None, tmp_path / "wide", layout="transformers", **how)
        assert not (tmp_path / "wide").exists()
        return
    save_model(found.model, None, tmp_path / "wide", layout="transformers", **how)
    packed = rows(model.base)
    ours, theirs = numbers(model, packed), their_numbers(tmp_path / "wide", name, packed, "roformer")
    assert (ours - theirs).abs().max() <= BOUND


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ("answers or none", "relations")])
def test_electra(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = tuned("albert", family)
    how: dict[str, Any] = {"extra_tensors": model.head, "extra_config": family.config("electra", 0.1)}
    if name not in COMPUTED["electra"]:
        with pytest.raises(SettingsError, match="no class that computes the head"):
            save_model(model.base, None, tmp_path / "m", layout="electra", **how)
        return
    save_model(model.base, None, tmp_path / "m", layout="electra", **how)
    packed = rows(model.base)
    ours, theirs = numbers(model, packed), their_numbers(tmp_path / "m", name, packed, "electra")
    assert (ours - theirs).abs().max() <= BOUND
    found = read_folder(tmp_path / "m")
    again = tuned_model(found, family_of(found, WordPieceTokenizer(PIECES), tmp_path), tmp_path)
    assert (numbers(again, packed) - ours).abs().max() <= BOUND


def as_before(folder: Path) -> None:
    """Make a folder what it was when the head had names of transformers in any case."""
    tensors = load_file(folder / "model.safetensors")
    old = {name.removeprefix("albertine.head."): x for name, x in tensors.items() if x.numel()}
    save_file(old, folder / "model.safetensors", metadata={"format": "pt"})
    tree = json.loads((folder / "config.json").read_text())
    tree |= tree["albertine"].pop("own_head")["words"] | {"architectures": ["RoFormerModel"]}
    (folder / "config.json").write_text(json.dumps(tree))


@pytest.mark.parametrize("name", ["single depths", "choice depths", "tags crf", "relations"])
def test_folders_of_earlier_versions(name: str, tmp_path: Path, capsys: Any) -> None:
    """They are read as ever, `doctor` names them, and `convert` writes them anew."""
    family, tokenizer = FAMILIES[name], WordPieceTokenizer(PIECES)
    model = tuned("roformer", family)
    packed = rows(model.base)
    old, new = tmp_path / "old", tmp_path / "new"
    save_tuned(model, tokenizer, family, old)
    as_before(old)
    check_read_back(model, old, tokenizer, name, packed)
    assert run(["doctor", str(old)]) == 0
    assert "written by an earlier version" in capsys.readouterr().out
    assert run(["convert", str(old), str(new)]) == 0
    assert "transformers: AutoModel loads the encoder; no class computes the head" in capsys.readouterr().out
    check_read_back(model, new, tokenizer, name, packed)
    assert run(["doctor", str(new)]) == 0
    assert "by an earlier version" not in capsys.readouterr().out
    assert "albertine.Predictor" in (new / "README.md").read_text()
    if (auto := AUTO.get(name.split()[0])) is not None:
        with pytest.raises(RuntimeError):
            auto.from_pretrained(new)


def test_a_choice_of_an_earlier_version_gets_the_settings_of_its_summary(tmp_path: Path, capsys: Any) -> None:
    """Whose class took the last token, and no layer, in place of the pooled [CLS]."""
    family = FAMILIES["choice cls"]
    model = tuned("roformer", family)
    save_tuned(model, WordPieceTokenizer(PIECES), family, tmp_path / "old")
    tensors = load_file(tmp_path / "old" / "model.safetensors")
    before = {
        n.replace("sequence_summary.summary.", "albertine.pooler.dense."): x for n, x in tensors.items()
    }
    save_file(before, tmp_path / "old" / "model.safetensors", metadata={"format": "pt"})
    tree = json.loads((tmp_path / "old" / "config.json").read_text())
    tree = {key: x for key, x in tree.items() if not key.startswith("summary_")}
    tree["architectures"] = ["RoFormerModel"]
    (tmp_path / "old" / "config.json").write_text(json.dumps(tree))
    assert run(["doctor", str(tmp_path / "old")]) == 0
    assert "written by an earlier version" in capsys.readouterr().out
    assert run(["convert", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    packed = rows(model.base)
    ours, theirs = numbers(model, packed), their_numbers(tmp_path / "new", "choice cls", packed, "roformer")
    assert (ours - theirs).abs().max() <= BOUND


def test_a_pipeline_does_not_answer_from_another_head(tmp_path: Path) -> None:
    family = FAMILIES["single depths"]
    save_tuned(tuned("roformer", family), WordPieceTokenizer(PIECES), family, tmp_path)
    with pytest.raises(ValueError, match="Could not load model"):
        transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")


def test_a_class_that_computes_other_numbers_is_not_named(tmp_path: Path) -> None:
    """The check at saving: a pooler that the class would not find where it looks for it."""
    family = FAMILIES["single cls"]
    model = tuned("bert", family)
    base = Model(model.base.config, ())
    base.load_state_dict({n: x for n, x in model.base.state_dict().items() if "pooler" not in n})
    save_model(base, None, tmp_path, extra_tensors=model.head, extra_config=family.config("bert", 0.1))
    tree = json.loads((tmp_path / "config.json").read_text())
    assert tree["architectures"] == ["AlbertineForSequenceClassification"]


@pytest.mark.sample(8)
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "albertine"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "depths", "whitened"])
def test_vectors(layout: str, pooling: Any, tmp_path: Path) -> None:
    """sentence-transformers gives the vectors of Albertine, also for a copied folder."""
    from sentence_transformers import SentenceTransformer

    family = Embed("cosine", 32, pooling=pooling, normalize=pooling == "depths")
    model = tuned(layout, family)
    tokenizer = WordPieceTokenizer(PIECES)
    if layout == "xlnet":
        tokenizer = train_sentencepiece(["a b d e f c"] * 9, tmp_path / "v", 25, cls_last=True)  # type: ignore[assignment]
    save_tuned(model, tokenizer, family, tmp_path / "m")
    assert run(["convert", str(tmp_path / "m"), str(tmp_path / "copy")]) == 0
    texts = ["a b", "a", "d e f a b c", "b " * 40]
    wanted = Predictor(tmp_path / "m", precision="float32").embed(texts)
    for folder in (tmp_path / "m", tmp_path / "copy"):
        theirs = SentenceTransformer(str(folder), device="cpu").encode(texts)
        np.testing.assert_allclose(theirs, wanted, atol=BOUND)
