"""8-bit integers of OpenVINO: NNCF measures activations over real sentences, and what comes out is counted.

Weights are int8 per channel, activations 8 bits with a range that the sentences had. A product counts as
quantised where both of its factors are; the two of attention are fused and stay float32, and count too.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from albertine.core.openvino_core import openvino_core
from albertine.errors import DataError, ModelError, RunError, SettingsError
from albertine.export.onnx_int8 import LEAST_SHARE
from albertine.export.quiet_logging import errors_only
from albertine.export.source_model import Opened
from albertine.export.verify import Arrays, subjects_of
from albertine.inference.whitening import sentences_of
from albertine.interop.huggingface.config import our_flags

SENTENCES = 256
"""Number of texts or pairs in a sample: half of them for calibration, half for verification."""
LONGEST = 128
"""Most tokens of a text or a pair."""
_PASSED = frozenset({"Reshape", "Transpose", "Convert", "Multiply", "Subtract", "Squeeze", "Unsqueeze"})
"""Operations between an int8 weight and its product: conversion, scaling and reshaping."""


def calibration(source: Opened, texts: Sequence[Path]) -> list[Arrays]:
    """Sentences of these texts as inputs, one each; where the model reads two texts in a row, two that follow
    each other.

    Raises:
        SettingsError: there are no texts. ModelError: no tokenizer. DataError: no sentence in the texts.
    """
    if not texts:
        raise SettingsError(
            "8-bit integers of OpenVINO measure activations over text",
            remedy="Add --sample TEXT, some hundred lines like those that the model is to read",
        )
    if source.tokenizer is None:
        raise ModelError("has no tokenizer to read the sample with", where=source.path)
    found, longest = [], min(LONGEST, source.head.base.config.max_position_embeddings)
    encode, pairs = source.tokenizer.encode, reads_pairs(source)
    sentences = sentences_of(texts, SENTENCES if pairs is False else 2 * SENTENCES)
    for first, second in _rows(sentences, pairs):
        two = None if second is None else encode(second)
        ids, types = source.tokenizer.layout(encode(first), two, max_length=longest)
        row = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
        inputs = {name: np.array(x, np.int64)[None] for name, x in row.items()}
        found.append(inputs | ({"subjects": subjects_of(inputs)} if source.head.of_subjects else {}))
    if not found:
        raise DataError("has no sentence", where=texts[0])
    return found


def reads_pairs(source: Opened) -> bool | None:
    """Whether what is exported reads two texts in a row; None: one or two, or unknown."""
    if source.answers in ("answer", "choose"):
        return True if source.answers == "answer" else None  # an option may stand in a gap of its passage
    if source.answers != "classify":
        return False
    flags = our_flags(source.config)
    if flags.get("pooling") == "compared":
        return True
    return flags["pairs"] if isinstance(flags.get("pairs"), bool) else None


def _rows(sentences: Sequence[str], pairs: bool | None) -> list[tuple[str, str | None]]:
    """One text or two for every row; by turns, two rows of each kind, where it may be either, so that every
    second row has both too."""
    if pairs is False or not sentences:
        return [(text, None) for text in sentences]
    two = list(zip(sentences[::2], sentences[1::2], strict=False)) or [(sentences[0], sentences[0])]
    return [(a, b if pairs or i // 2 % 2 else None) for i, (a, b) in enumerate(two)]


def quantized(source: Path, inputs: Sequence[Arrays]) -> tuple[Any, dict[str, Any]]:
    """A float32 file in 8-bit integers.

    Returns:
        The model, and for the report: products, how many of them are quantised, sentences.

    Raises:
        ModelError: too few products are. RunError: NNCF is missing.
    """
    if find_spec("nncf") is None:
        raise RunError(
            "8-bit integers of OpenVINO need nncf", remedy="pip install 'albertine[openvino-export]'"
        )
    with errors_only("nncf", ""), contextlib.redirect_stdout(io.StringIO()):  # nor with bars
        import nncf

        model = openvino_core().read_model(source)
        known = {name for one in model.inputs for name in one.get_names()}
        rows = [{name: x for name, x in row.items() if name in known} for row in inputs]
        dataset = nncf.Dataset(rows)
        kind = nncf.ModelType.TRANSFORMER
        small = nncf.quantize(model, dataset, model_type=kind, subset_size=len(rows))
    total, integers = counted(small)
    if integers < LEAST_SHARE * total:
        raise ModelError(
            f"only {integers} of {total} matrix products came out in 8-bit integers, and "
            f"{LEAST_SHARE:.0%} is the least that may be called INT8",
            where=source.name,
            remedy="Export it without --int8; nothing was written",
        )
    return small, {"products": total, "quantised": integers, "sentences": len(rows)}


def counted(model: Any) -> tuple[int, int]:
    """The matrix products of a model, those of fused attention among them, and how many have two quantised
    factors."""
    total = integers = 0
    for node in model.get_ops():
        kind = node.get_type_name()
        if kind == "ScaledDotProductAttention":
            total += 2
        elif kind == "MatMul":
            total += 1
            integers += all(_narrow(value.get_source_output().get_node()) for value in node.inputs())
    return total, integers


def _narrow(node: Any) -> bool:
    """Whether numbers come out of 8 bits: a measured range, or an int8 constant."""
    while node.get_type_name() in _PASSED:
        node = node.input(0).get_source_output().get_node()
    if node.get_type_name() == "Constant":
        return str(node.get_element_type().get_type_name()) in ("i8", "u8")
    return bool(node.get_type_name() == "FakeQuantize")
