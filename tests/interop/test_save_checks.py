"""`save` writes nothing that `load` would refuse, and its errors explain how a wrapped or changed model
becomes plain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import albertine
from albertine.errors import ModelError, TokenizerError
from albertine.model.model import Model
from tests.model.builders import config


def made() -> Model:
    return Model(config(), {"mlm"}, seed=1).eval()


def adapted(model: Model) -> nn.Module:
    peft = pytest.importorskip("peft")
    whole: nn.Module = peft.get_peft_model(model, peft.LoraConfig(target_modules=["query"]))
    return whole


def injected(model: Model) -> nn.Module:
    adapted(model)
    return model


def normed(model: Model) -> nn.Module:
    nn.utils.parametrizations.weight_norm(model.get_submodule("mlm.dense"))
    return model


def pruned(model: Model) -> nn.Module:
    from torch.nn.utils import prune

    prune.l1_unstructured(model.get_submodule("mlm.dense"), "weight", 0.5)
    return model


def enlarged(model: Model) -> nn.Module:
    words = model.encoder.embeddings.word
    model.encoder.embeddings.word = nn.Embedding(words.num_embeddings + 1, words.embedding_dim)
    return model


def diverged(model: Model) -> nn.Module:
    with torch.no_grad():
        model.encoder.embeddings.word.weight[1, 1] = float("nan")
    return model


def doubled(model: Model) -> nn.Module:
    return nn.DataParallel(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (adapted, r"a PeftModel is no model.*merge_and_unload\(\)"),
        (injected, r"more than its configuration.*query.*merge_and_unload\(\)"),
        (normed, r"more than its configuration.*remove_parametrizations"),
        (pruned, r"more than its configuration.*prune\.remove"),
        (enlarged, r"word\.weight has shape \[\d+, \d+\], its configuration gives"),
        (diverged, r"word.*holds values that are not finite"),
        (doubled, "a DataParallel is no model"),
    ],
)
def test_what_load_would_refuse_is_not_written(
    change: Callable[[Model], nn.Module], message: str, tmp_path: Path
) -> None:
    """Existing files stay."""
    good = made()
    albertine.save(good, None, tmp_path / "good")
    before = {path: path.read_bytes() for path in (tmp_path / "good").iterdir()}
    with pytest.raises(ModelError, match=message):
        albertine.save(change(made()), None, tmp_path / "good")  # type: ignore[arg-type]
    assert {path: path.read_bytes() for path in (tmp_path / "good").iterdir()} == before


def test_what_is_no_tokenizer_is_not_saved(tmp_path: Path) -> None:
    """Catches: a name in the place of the tokenizer that it stands for."""
    with pytest.raises(TokenizerError, match=r"a str is no tokenizer of albertine\. Give what"):
        albertine.save(made(), "albertine-mini-en", tmp_path / "a")  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


def test_a_compiled_model_is_saved_as_what_it_was(tmp_path: Path) -> None:
    """The whole model compiled, or a part of it."""
    albertine.save(made(), None, tmp_path / "plain")
    part = made()
    part.mlm = torch.compile(part.mlm, backend="eager")
    for name, model in (("whole", torch.compile(made(), backend="eager")), ("part", part)):
        albertine.save(model, None, tmp_path / name)
        one, two = (tmp_path / kind / "model.safetensors" for kind in ("plain", name))
        assert one.read_bytes() == two.read_bytes()
