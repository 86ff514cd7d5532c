"""GGUF: a file that llama.cpp runs, where one of its architectures is exactly the encoder
(`interop.gguf.llama_names`), and a refusal that names what is in the way where none is.

llama.cpp has no shared weights: every depth is written as a copy. It gives states, their mean, the first of
them, or scores of classes; it has no masked-LM head and no other head of a token.

The verification reads the file and computes it with segments of 0 only, as llama.cpp does. It stands for the
names and numbers in the file; llama.cpp's own arithmetic is coarser (on processors its GELU is a table of
half-precision numbers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from albertine.core.batch import Packed, from_padded
from albertine.errors import ModelError
from albertine.export.formats import ExportedFile, ExportOptions
from albertine.export.llama_vocabulary import unlike, vocabulary
from albertine.export.source_model import Opened
from albertine.export.verify import Arrays, Run
from albertine.inference.graph_heads import Classes, Head, Hidden, Outputs, TextVector
from albertine.inference.sequence_tables import Table
from albertine.interop.gguf.file import GgufFile, Value, read_gguf, write_gguf
from albertine.interop.gguf.llama_names import (
    CLASSIFIER,
    LLAMA,
    LlamaArchitecture,
    llama_layout,
    unsupported_by_llama,
)
from albertine.interop.heads import labels_in
from albertine.interop.huggingface.names import UNUSED_NORM
from albertine.interop.keymap import to_ours, to_theirs
from albertine.interop.tied_expansion import expanded
from albertine.model.config import EncoderConfig
from albertine.model.loop import EncoderOutput
from albertine.model.model import Model
from albertine.model.pooling import Pooling, text_vectors
from albertine.model.resharing import replan
from albertine.model.sharing import SharingPlan

NEEDS: tuple[str, ...] = ()
EXTRA = "export"
OPTIONS = frozenset[str]()
FILE = "model.gguf"
_POOLINGS: Mapping[str, int] = {"none": 0, "mean": 1, "cls": 2, "rank": 4}
_VECTORS: Mapping[int, Pooling] = {1: "mean", 2: "cls"}
_MOST_LAYERS = 512


def write(source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]:
    """Write `model.gguf`.

    Raises:
        ModelError: no architecture of llama.cpp is this encoder, or it has no such head or tokenizer.
    """
    if source.tokenizer is None:
        raise ModelError("has no tokenizer, without which llama.cpp loads nothing", where=source.path)
    head, base = _llama_head(source), source.head.base
    if head.pooling == "rank" and llama_layout(base.config) != "bert":
        raise ModelError("has a classifier, which llama.cpp has for BERT's block alone", where=source.path)
    if found := unsupported_by_llama(base.config):
        raise ModelError(
            f"is none of llama.cpp's encoders: it has {'; '.join(found)}",
            where=source.path,
            remedy="Export it to onnx or openvino",
        )
    if base.config.num_hidden_layers > _MOST_LAYERS:
        raise ModelError(f"has more than {_MOST_LAYERS} depths, llama.cpp's most", where=source.path)
    kind = llama_layout(base.config)
    values = _values(kind, source, head)
    try:
        values |= vocabulary(source.tokenizer, base.config.vocab_size)
    except ModelError as error:
        raise ModelError(error.what, where=source.path) from error
    write_gguf(folder / FILE, values, _tensors(kind, base, head))
    notes = ["llama.cpp takes every token for one of the first segment: give it single texts"]
    facts = {
        "architecture": kind,
        "bytes": (folder / FILE).stat().st_size,
        "notes": notes + unlike(source.tokenizer),
    }
    return [ExportedFile(FILE, "float32", runner(folder / FILE), facts=facts, head=head)]


def _llama_head(source: Opened) -> LlamaHead:
    """The head as far as llama.cpp has one."""
    head = source.head
    if isinstance(head, Hidden):
        return LlamaHead(head, "none", ("last_hidden_state",))
    if isinstance(head, TextVector) and head.whitening is None and head.pooling != "depths":
        plain = TextVector(head.base, head.pooling, normalize=False)  # which the programs do themselves
        return LlamaHead(plain, head.pooling, ("last_hidden_state", "sentence_embedding"))
    if type(head) is Classes and (head.classifier.per_token, head.classifier.pooling) == (False, "cls"):
        return LlamaHead(head, "rank", ("logits",))
    raise ModelError(
        f"answers `{source.answers}`, for which llama.cpp has no head",
        where=source.path,
        remedy="Export its states, with --head features, or use onnx",
    )


class LlamaHead(Head):
    """The outputs of another head that llama.cpp computes, with every token in segment 0.

    Attributes:
        pooling: "none", "mean", "cls" or "rank", as llama.cpp names them.
    """

    def __init__(self, head: Head, pooling: str, names: tuple[str, ...]) -> None:
        super().__init__(head.model, head.base)
        self.inner, self.pooling = head, pooling
        self.axes = {name: head.axes[name] for name in names}

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        raise NotImplementedError  # there is no graph: the file is read

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        first = replace(packed, token_type_ids=torch.zeros_like(packed.token_type_ids))
        found = dict(zip(self.inner.axes, self.inner.source(first, subjects), strict=True))
        return tuple(found[name] for name in self.axes)

    @property
    def classifier(self) -> dict[str, Tensor]:
        """The layer over the pooler's output, by its names in the file."""
        if not isinstance(self.inner, Classes):
            return {}
        layer = self.inner.layer
        return {f"{CLASSIFIER}{name}": x for name, x in layer.named_parameters()}


def _values(kind: LlamaArchitecture, source: Opened, head: LlamaHead) -> dict[str, Value]:
    """Everything but the vocabulary."""
    config = source.head.base.config
    values: dict[str, Value] = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "block_count": config.num_hidden_layers,
        "attention.head_count": config.num_attention_heads,
        "attention.layer_norm_epsilon": float(config.layer_norm_eps),
        "attention.causal": False,
        "vocab_size": config.vocab_size,
    }
    if head.pooling != "none":
        values["pooling_type"] = _POOLINGS[head.pooling]
    if head.pooling == "rank":
        count = len(head.classifier[f"{CLASSIFIER}bias"])
        values["classifier.output_labels"] = list(labels_in(source.config, count))
    if config.positions == "rotary":
        values |= {"rope.freq_base": float(config.rotary_base), "rope.scaling.type": "none"}
    general: dict[str, Value] = {
        "general.architecture": kind,
        "general.name": source.path.name,
        "general.file_type": 0,
    }
    return (
        general
        | {f"{kind}.{name}": value for name, value in values.items()}
        | {"tokenizer.ggml.token_type_count": max(config.type_vocab_size, 1)}
    )


def _tensors(kind: LlamaArchitecture, base: Model, head: LlamaHead) -> dict[str, np.ndarray[Any, Any]]:
    """One block a depth, and what the head needs."""
    if base.config.output == "own":
        base = _without_own_output(base)
    plain = replan(base, SharingPlan.unshared(base.config.num_hidden_layers))
    model = expanded(base, "modernbert") if kind == "modern-bert" else plain
    state = {name: x for name, x in model.state_dict().items() if _has_place(name, head)}
    tensors = to_theirs(LLAMA[kind].entries(state), state, model.config.num_attention_heads)
    return {name: x.detach().float().numpy() for name, x in (tensors | head.classifier).items()}


def _without_own_output(base: Model) -> Model:
    """Without the heads that predict words, of which a file has none."""
    with torch.device("meta"):
        encoder = Model(replace(base.config, output="tied"), base.heads - {"mlm", "lm"})
    kept = encoder.state_dict().keys()
    encoder.load_state_dict({name: x for name, x in base.state_dict().items() if name in kept}, assign=True)
    return encoder


def _has_place(name: str, head: LlamaHead) -> bool:
    if name == UNUSED_NORM and head.base.config.norm == "pre":
        return False
    return name.startswith("encoder.") or (name.startswith("pooler.") and head.pooling == "rank")


@dataclass(frozen=True)
class LlamaModel:
    """The outputs of a file, computed by Albertine.

    Attributes:
        model: encoder, and the pooler where the file has one. pooling: as in the file; 0: none.
        classifier: weight and bias over the pooler's output, or None.
    """

    model: Model
    pooling: int
    classifier: tuple[Tensor, Tensor] | None

    def __call__(self, inputs: Arrays) -> Arrays:
        """The outputs by name, of ids and mask; segments are not looked at."""
        ids, mask = (torch.from_numpy(inputs[name]) for name in ("input_ids", "attention_mask"))
        packed, _ = from_padded(ids, mask)
        with torch.no_grad():
            found = {"last_hidden_state": self.model(ids, mask).last_hidden_state}
            if (pooling := _VECTORS.get(self.pooling)) is not None:
                found["sentence_embedding"] = text_vectors(self.model, packed, pooling)
            if self.classifier is not None:
                pooled = self.model.pooled(text_vectors(self.model, packed, "cls"))
                found["logits"] = torch.nn.functional.linear(pooled, *self.classifier)
        return {name: x.numpy() for name, x in found.items()}


def read_llama(path: Path) -> LlamaModel:
    """The model in a file that was written here.

    Raises:
        ModelError: it is damaged or of another architecture.
    """
    file = read_gguf(path)
    kind = next((one for one in LLAMA if one == file.values.get("general.architecture")), None)
    if kind is None:
        raise ModelError("is of an architecture that is not read", where=path)
    config = _config_of(kind, file)
    tensors = {name: torch.from_numpy(np.array(x)) for name, x in file.tensors.items()}
    with torch.device("meta"):
        model = Model(config, {"pooler"} if "cls.weight" in tensors else set())
    wanted = [name for name in model.state_dict() if kind != "modern-bert" or name != UNUSED_NORM]
    rules = LLAMA[kind].entries(wanted)
    state = to_ours(rules, tensors.__getitem__, path, config.num_attention_heads)
    if kind == "modern-bert":
        state[UNUSED_NORM] = torch.ones(config.hidden_size)
    model.load_state_dict(state, assign=True)
    parts = [tensors.get(f"{CLASSIFIER}{name}") for name in ("weight", "bias")]
    classifier = None if parts[0] is None or parts[1] is None else (parts[0], parts[1])
    return LlamaModel(model.eval(), file.values.get(f"{kind}.pooling_type", 0), classifier)


def _config_of(kind: LlamaArchitecture, file: GgufFile) -> EncoderConfig:
    values = {name.removeprefix(f"{kind}."): value for name, value in file.values.items()}
    modern = kind == "modern-bert"
    return EncoderConfig(
        vocab_size=values["vocab_size"],
        embedding_size=values["embedding_length"],
        hidden_size=values["embedding_length"],
        num_attention_heads=values["attention.head_count"],
        intermediate_size=values["feed_forward_length"],
        plan=SharingPlan.unshared(values["block_count"]),
        hidden_act="gelu_new",
        max_position_embeddings=values["context_length"],
        type_vocab_size=0 if modern else values["tokenizer.ggml.token_type_count"],
        layer_norm_eps=values["attention.layer_norm_epsilon"],
        positions="learned" if kind == "bert" else "rotary",
        rotary_base=values.get("rope.freq_base", 10000.0),
        norm="pre" if modern else "post",
        feed_forward="gated" if modern else "plain",
        biases=not modern,
    )


def runner(file: Path) -> Run:
    """Computes a file as `LlamaModel` does; it is read at the first call."""
    model = cache(partial(read_llama, file))
    return lambda inputs: model()(inputs)
