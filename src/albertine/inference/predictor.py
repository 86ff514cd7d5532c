"""Ask a trained model: which word stands under [MASK], and which of two passages comes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from albertine.errors import DataError, ModelError
from albertine.interop.huggingface import load_model
from albertine.layout import pack
from albertine.precision import Precision
from albertine.text.load import load_tokenizer

MASK = "[MASK]"


@dataclass(frozen=True)
class Guess:
    """One candidate for a masked position: the piece, its id and its probability in [0, 1]."""

    token: str
    token_id: int
    probability: float


class Predictor:
    """A model folder, ready to be asked.

    Args:
        path: folder with `config.json`, `model.safetensors` and the vocabulary.
        device: where to compute.
        precision: format of matrix products; `auto` takes bfloat16 where hardware has it.

    Raises:
        ModelError, TokenizerError: the folder is missing, damaged, or its vocabulary does not fit the model.
    """

    def __init__(self, path: str | Path, *, device: str = "cpu", precision: Precision = "auto") -> None:
        self.device = torch.device(device)
        self.tokenizer = load_tokenizer(Path(path))
        self.model = load_model(Path(path)).to(self.device).eval()
        self.model.precision = precision
        if self.tokenizer.vocab_size > self.model.config.vocab_size:
            raise ModelError(
                f"has {self.model.config.vocab_size} word vectors, and its tokenizer knows "
                f"{self.tokenizer.vocab_size} pieces",
                where=path,
                remedy="Put the tokenizer that the model was trained with into the folder",
            )

    @torch.inference_mode()
    def fill_mask(self, text: str, *, top_k: int = 5) -> list[list[Guess]]:
        """The `top_k` likeliest pieces for every [MASK] of `text`, best first; one list a mask."""
        ids = self.tokenizer(text, max_length=self.model.config.max_position_embeddings)["input_ids"]
        rows = [i for i, token in enumerate(ids) if token == self.tokenizer.mask_id]
        if not rows:
            raise DataError(
                f"there is no {MASK} in the text", remedy=f"Write {MASK} where a word is to be guessed"
            )
        if self.model.mlm is None:
            raise ModelError(
                "the model has no masked-LM head", remedy="Use a pretrained model, not a fine-tuned one"
            )
        logits, _ = self.model.pretraining_forward(
            pack([ids]).to(self.device), torch.tensor(rows, device=self.device)
        )
        special = torch.tensor(sorted(self.tokenizer.special_ids), device=self.device)
        logits = logits.float().index_fill(1, special, float("-inf"))[:, : self.tokenizer.vocab_size]
        probabilities, best = logits.softmax(-1).topk(top_k)
        return [
            [
                Guess(self.tokenizer.id_to_piece(token), token, probability)
                for token, probability in zip(tokens, values, strict=True)
            ]
            for tokens, values in zip(best.tolist(), probabilities.tolist(), strict=True)
        ]

    @torch.inference_mode()
    def sentence_order(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Probability that the first passage of each pair really comes before the second.

        For a model trained with next-sentence prediction: that the second follows the first at all.
        """
        if self.model.sentence is None:
            raise ModelError(
                "the model has no sentence head", remedy="Pretrain with objective.pairs sop or nsp"
            )
        encoded = [
            self.tokenizer(a, b, max_length=self.model.config.max_position_embeddings) for a, b in pairs
        ]
        packed = pack([e["input_ids"] for e in encoded], [e["token_type_ids"] for e in encoded]).to(
            self.device
        )
        _, logits = self.model.pretraining_forward(
            packed, torch.empty(0, dtype=torch.long, device=self.device)
        )
        assert logits is not None
        return list(logits.float().softmax(-1)[:, 0].tolist())
