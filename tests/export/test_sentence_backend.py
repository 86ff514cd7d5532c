"""What the ONNX backend of sentence-transformers requires of a folder (it loads one by optimum-onnx, which
this suite does not install; `benchmarks.foreign_runtimes` runs it)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from albertine.export.export_model import export
from albertine.export.onnx import session_of
from albertine.model.pooling import Pooling
from tests.export import saved

TEXTS = ["the old man", "said a b c, and the man unb north 北京!", "x"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_its_modules_make_the_vectors_of_the_source_out_of_the_graph(
    pooling: Pooling, normalize: bool, tmp_path: Path
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    source = saved.embedder(tmp_path / "m", pooling, normalize)
    wanted = sentence_transformers.SentenceTransformer(str(source), device="cpu").encode(TEXTS)
    out = export(source, tmp_path / "out", ["onnx"]).folder
    from transformers import AutoConfig, AutoTokenizer

    assert AutoConfig.from_pretrained(out).model_type == "albert"  # which optimum reads first
    session = session_of(out / "onnx" / "model.onnx")  # where it looks for the file
    tokenizer = AutoTokenizer.from_pretrained(out)
    batch = tokenizer(TEXTS, padding=True, return_tensors="np")
    assert {one.name for one in session.get_inputs()} == set(batch)
    assert "last_hidden_state" in {one.name for one in session.get_outputs()}
    (states,) = session.run(["last_hidden_state"], {name: x.astype(np.int64) for name, x in batch.items()})
    states, mask = torch.from_numpy(states), torch.from_numpy(batch["attention_mask"])
    features = {"token_embeddings": states, "attention_mask": mask}
    for module in list(sentence_transformers.SentenceTransformer(str(source), device="cpu"))[1:]:
        features = module(features)
    assert {"modules.json", "1_Pooling", "sentence_bert_config.json"} <= {path.name for path in out.iterdir()}
    assert np.abs(features["sentence_embedding"].numpy() - wanted).max() < 1e-5
