"""ALBERT in one file, to be read from top to bottom.

How Lan et al. pretrain an encoder ("ALBERT: A Lite BERT for Self-supervised Learning of Language
Representations", arXiv 1909.11942), in plain PyTorch: the model, the two tasks that it learns, the optimizer
and the training loop. Only the text comes prepared: `Corpus` reads a folder of token ids and its tokenizer.

    albertine prepare data/demo/english.tar.xz --output corpora/en --vocab-size 4000
    python examples/albert_in_one_file.py corpora/en

It prints losses and guesses for a [MASK]. Ten minutes on two processor cores teach the order of sentences,
but little more than the frequencies of tokens. albert-base has H=768, E=128, N=12, F=3072, 12 layers, L=512.

Letters in comments and names are the axes of a tensor, as (B, L, H) or x_BLH:

    B batch   L length   V vocabulary   E embedding   H hidden   N heads   D = H / N   F feed-forward
    P predicted positions of all sequences of a batch
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.corpus.reader import Corpus
from albertine.tokenizers.base import Tokenizer

# ------------------------------------------------------------------------------------------------------------
# 1. The model


@dataclass
class Config:
    """The shape of an encoder. The defaults are those of the small model that `main` trains."""

    vocab_size: int  # V
    embedding_size: int = 64  # E
    hidden_size: int = 192  # H
    num_heads: int = 4  # N
    intermediate_size: int = 768  # F
    num_layers: int = 3
    max_length: int = 32  # longest L


class Embeddings(nn.Module):
    """From token ids to vectors (section 3.1, "Factorized embedding parameterization").

    BERT has a table of V x H numbers. ALBERT has one of V x E, with E much smaller than H, and a matrix of
    E x H after it. For albert-base that is 30,000 * 128 + 128 * 768 = 3.9 million numbers, not 23 million.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.embedding_size
        self.word = nn.Embedding(config.vocab_size, width)
        self.position = nn.Embedding(config.max_length, width)
        self.token_type = nn.Embedding(2, width)  # first or second segment
        self.layer_norm = nn.LayerNorm(width, eps=1e-12)
        self.mapping = nn.Linear(width, config.hidden_size)

    def forward(self, ids_BL: Tensor, types_BL: Tensor) -> Tensor:
        positions_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        x = self.word(ids_BL) + self.position(positions_L) + self.token_type(types_BL)  # (B, L, E)
        return self.mapping(self.layer_norm(x))  # (B, L, H)


class Block(nn.Module):
    """One layer of a transformer (Vaswani et al. 2017): self-attention, then a feed-forward network.

    Each is added to its input, and the sum is normalised ("post-norm"), as in BERT.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, wide = config.hidden_size, config.intermediate_size
        self.num_heads = config.num_heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.attention_output = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.intermediate = nn.Linear(hidden, wide)
        self.output = nn.Linear(wide, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)

    def forward(self, x_BLH: Tensor, padding_BL: Tensor) -> Tensor:
        x = self.attention_norm(x_BLH + self.attention(x_BLH, padding_BL))  # (B, L, H)
        wide = F.gelu(self.intermediate(x), approximate="tanh")  # (B, L, F)
        return self.norm(x + self.output(wide))  # (B, L, H)

    def attention(self, x_BLH: Tensor, padding_BL: Tensor) -> Tensor:
        """For each token a weighted mean of all tokens of its sequence; the weight of padding is 0."""
        heads = (*x_BLH.shape[:2], self.num_heads, -1)  # (B, L, N, D)
        layers = (self.query, self.key, self.value)
        q, k, v = (layer(x_BLH).view(heads).transpose(1, 2) for layer in layers)  # each (B, N, L, D)
        scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5  # (B, N, L, D) @ (B, N, D, L) = (B, N, L, L)
        scores = scores.masked_fill(padding_BL[:, None, None, :], float("-inf"))
        mixed = scores.softmax(-1) @ v  # (B, N, L, D)
        return self.attention_output(mixed.transpose(1, 2).flatten(2))


class Albert(nn.Module):
    """The encoder, and the two heads that pretraining needs."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.block = Block(config)  # one for all layers
        # Masked tokens: back to width E, where logits are products with the word embeddings.
        self.mlm_dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.mlm_norm = nn.LayerNorm(config.embedding_size, eps=1e-12)
        self.mlm_bias = nn.Parameter(torch.zeros(config.vocab_size))
        # Sentence order: the vector of the first token, [CLS], represents the whole sequence.
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.sentence = nn.Linear(config.hidden_size, 2)
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Matrices from a normal distribution cut off at two sigmas; biases 0; scales of LayerNorm 1."""
        sigma = 0.02
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.trunc_normal_(parameter, 0.0, sigma, -2 * sigma, 2 * sigma)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        # Not in the paper: larger embeddings, and sines and cosines for positions (Vaswani et al. 2017, 3.5).
        # A small model on little text otherwise learns for very long only how frequent each token is.
        tables = self.embeddings
        tables.word.weight *= 0.15 / sigma
        tables.token_type.weight *= 0.15 / sigma
        length, width = tables.position.weight.shape
        angles = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, width, 2) / width)
        tables.position.weight.copy_(0.2 * torch.cat([angles.sin(), angles.cos()], 1))

    def encode(self, ids_BL: Tensor, types_BL: Tensor, padding_BL: Tensor) -> Tensor:
        """The last layer's vectors, (B, L, H)."""
        x = self.embeddings(ids_BL, types_BL)
        for _ in range(self.config.num_layers):
            # "Cross-layer parameter sharing" (section 3.1): all layers are the same block. It takes the time
            # of many layers and has the weights of one, in which the gradients of all layers add up.
            x = self.block(x, padding_BL)
        return x

    def mlm_logits(self, rows_PH: Tensor) -> Tensor:
        """Logits over the vocabulary, (P, V), at the predicted positions."""
        x = F.gelu(self.mlm_dense(rows_PH), approximate="tanh")  # (P, E)
        return self.mlm_norm(x) @ self.embeddings.word.weight.T + self.mlm_bias  # (P, E) @ (E, V)

    def sentence_logits(self, x_BLH: Tensor) -> Tensor:
        """Two logits for each sequence, (B, 2): its segments are in order, or swapped."""
        return self.sentence(torch.tanh(self.pooler(x_BLH[:, 0])))


# ------------------------------------------------------------------------------------------------------------
# 2. What is learned: masked tokens and the order of sentences


@dataclass
class Batch:
    """Padded sequences [CLS] A [SEP] B [SEP], and the labels."""

    ids: Tensor  # masked token ids, (B, L)
    types: Tensor  # 0 in [CLS] A [SEP], 1 after it, (B, L)
    padding: Tensor  # True after the end of a sequence, (B, L)
    predicted: Tensor  # indices of the predicted tokens in the B * L, (P,)
    labels: Tensor  # the original ids there, (P,)
    swapped: Tensor  # 1 if B was before A in the text, 0 if not, -100 if there is no B, (B,)


Segment = tuple[np.ndarray, np.ndarray]  # token ids, and for each token whether a word begins with it
Sample = tuple[Segment, Segment | None, int]  # A, B, and the label of their order


def samples(corpus: Corpus, length: int, rng: np.random.Generator) -> Iterator[Sample]:
    """The samples of one epoch, documents in random order.

    Sentence-order prediction (section 3.1, "Inter-sentence coherence loss"): A and B follow each other in a
    document, and half of the pairs are swapped. BERT takes half of all B from other documents, and a model
    can recognise these by their topic alone.
    """
    room = length - 3  # [CLS] and two [SEP]
    for document in rng.permutation(corpus.num_documents):
        chunk, end = corpus.document_offsets[document : document + 2]  # its sentences
        while chunk < end:
            stop = chunk + 1  # whole sentences until the sample is full
            while stop < end and corpus.sentence_lengths[chunk:stop].sum() < room:
                stop += 1
            if stop == chunk + 1:  # a single sentence has no order
                ids, starts = corpus.span(chunk, stop)
                yield (ids[:room], starts[:room]), None, -100
            else:
                middle = rng.integers(chunk + 1, stop)
                a, b = cut(corpus.span(chunk, middle), corpus.span(middle, stop), room, rng)
                yield (b, a, 1) if rng.random() < 0.5 else (a, b, 0)
            chunk = stop


def cut(a: Segment, b: Segment, room: int, rng: np.random.Generator) -> tuple[Segment, Segment]:
    """Drop tokens of the longer segment, each at its beginning or its end at random, until both fit."""
    while len(a[0]) + len(b[0]) > room:
        kept = slice(1, None) if rng.random() < 0.5 else slice(0, -1)
        if len(a[0]) > len(b[0]):
            a = a[0][kept], a[1][kept]
        else:
            b = b[0][kept], b[1][kept]
    return a, b


NGRAM_P = np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3)  # of n = 1, 2, 3: proportional to 1/n


def choose_masked(starts: np.ndarray, special: np.ndarray, rng: np.random.Generator) -> list[int]:
    """The positions to predict: n-grams of whole words, 15 % of a sequence (section 4.1).

    Args:
        starts: where words begin, (L,). special: where [CLS] and [SEP] are, which are never predicted, (L,).
    """
    words: list[list[int]] = []  # the positions of the tokens of each word
    segment: list[int] = []  # the number of the segment of each word
    for position in np.flatnonzero(~special).tolist():
        if starts[position] or special[position - 1]:
            words.append([])
            segment.append(special[:position].sum())
        words[-1].append(position)
    budget = max(1, round(0.15 * len(special)))
    chosen: set[int] = set()
    lengths = rng.choice([1, 2, 3], size=len(words), p=NGRAM_P)
    for first in rng.permutation(len(words)):
        last = min(first + lengths[first], len(words))
        run = [word for word in range(first, last) if segment[word] == segment[first]]
        ngram = [position for word in run for position in words[word]]
        while len(ngram) > budget - len(chosen):  # shorten it until it fits into what is left
            ngram = ngram[: -len(words[run.pop()])]
        if chosen.isdisjoint(ngram):
            chosen.update(ngram)
    return sorted(chosen)


def mask(ids: np.ndarray, predicted: list[int], tokenizer: Tokenizer, rng: np.random.Generator) -> np.ndarray:
    """The ids that the model sees: of the predicted tokens 80 % become [MASK], 10 % a random token, and 10 %
    stay as they are (Devlin et al. 2018, arXiv 1810.04805, section 3.1)."""
    shown = ids.copy()
    for position in predicted:
        chance = rng.random()
        if chance < 0.8:
            shown[position] = tokenizer.mask_id
        elif chance < 0.9:
            shown[position] = rng.integers(tokenizer.vocab_size)
    return shown


def make_batch(items: list[Sample], tokenizer: Tokenizer, rng: np.random.Generator) -> Batch:
    """Lay out the samples, mask them, and pad them to the longest."""
    cls, sep, marked = [tokenizer.cls_id], [tokenizer.sep_id], [True]
    length = max(len(a[0]) + (2 if b is None else 3 + len(b[0])) for a, b, _ in items)  # L
    ids_BL = torch.zeros(len(items), length, dtype=torch.long)
    types_BL, padding_BL = torch.zeros_like(ids_BL), torch.ones_like(ids_BL, dtype=torch.bool)
    where, labels = [], []
    for row, (a, b, _) in enumerate(items):
        second = ([], []) if b is None else (np.append(b[0], sep), np.append(b[1], marked))
        ids = np.concatenate([cls, a[0], sep, second[0]]).astype(np.int64)
        starts = np.concatenate([marked, a[1], marked, second[1]]).astype(bool)
        special = np.zeros(len(ids), dtype=bool)
        special[[0, 1 + len(a[0]), len(ids) - 1]] = True
        predicted = choose_masked(starts, special, rng)
        ids_BL[row, : len(ids)] = torch.from_numpy(mask(ids, predicted, tokenizer, rng))
        types_BL[row, 2 + len(a[0]) : len(ids)] = 1
        padding_BL[row, : len(ids)] = False
        where += [row * length + position for position in predicted]
        labels += ids[predicted].tolist()
    swapped = torch.tensor([label for _, _, label in items])
    return Batch(ids_BL, types_BL, padding_BL, torch.tensor(where), torch.tensor(labels), swapped)


def batches(corpus: Corpus, size: int, length: int, seed: int) -> Iterator[Batch]:
    """Batches without end; each epoch draws other pairs and other masks."""
    rng, tokenizer = np.random.default_rng(seed), corpus.tokenizer()
    items: list[Sample] = []
    while True:
        for item in samples(corpus, length, rng):
            items.append(item)
            if len(items) == size:
                yield make_batch(items, tokenizer, rng)
                items = []


def losses(model: Albert, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the masked tokens and of the order of the segments, in nats. Their sum is the loss."""
    x_BLH = model.encode(batch.ids, batch.types, batch.padding)
    rows_PH = x_BLH.flatten(0, 1)[batch.predicted]  # logits over V are the largest tensor: only where needed
    mlm = F.cross_entropy(model.mlm_logits(rows_PH), batch.labels)
    order_sum = F.cross_entropy(model.sentence_logits(x_BLH), batch.swapped, reduction="sum")  # skips -100
    order = order_sum / (batch.swapped >= 0).sum().clamp(min=1)
    return mlm, order


# ------------------------------------------------------------------------------------------------------------
# 3. The optimizer


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2019, arXiv 1904.00962), by which ALBERT was trained (section 4.1), as in
    google-research/albert, `lamb_optimizer.py`: without a correction of Adam's bias.

    The update of Adam is scaled so that each matrix moves by the same share of its own length. That keeps
    the large learning rates of batches of 4,096 sequences stable.
    """

    def __init__(self, model: nn.Module, weight_decay: float = 0.01) -> None:
        matrices = [p for p in model.parameters() if p.ndim >= 2]
        vectors = [p for p in model.parameters() if p.ndim < 2]  # biases and LayerNorm: as in Adam
        groups = [{"params": matrices, "decay": weight_decay}, {"params": vectors, "decay": 0.0}]
        super().__init__(groups, {"lr": 0.0})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(w), torch.zeros_like(w)
                state["m"].lerp_(w.grad, 1 - 0.9)  # moving average of the gradient
                state["v"].lerp_(w.grad.square(), 1 - 0.999)  # and of its square
                update = state["m"] / (state["v"].sqrt() + 1e-6) + group["decay"] * w
                scaled = w.ndim >= 2 and w.norm() > 0 and update.norm() > 0
                w -= group["lr"] * (w.norm() / update.norm() if scaled else 1.0) * update


def learning_rate(progress: float, peak: float, warmup: float = 0.1) -> float:
    """A linear warm-up over the first tenth of the run; after it a linear decay to 0."""
    return peak * (progress / warmup if progress < warmup else 1 - progress)


def update(model: Albert, optimizer: Lamb, batch: Batch, rate: float) -> tuple[float, float]:
    """One step: forward, backward, clip the gradient to length 1, update. Returns both losses."""
    mlm, order = losses(model, batch)
    optimizer.zero_grad()
    (mlm + order).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return mlm.item(), order.item()


# ------------------------------------------------------------------------------------------------------------
# 4. Training and prediction


@torch.no_grad()
def fill_mask(model: Albert, tokenizer: Tokenizer, text: str, count: int = 5) -> list[tuple[str, float]]:
    """The likeliest tokens for the [MASK] of a text, with their probabilities."""
    ids_BL = torch.tensor([tokenizer(text)["input_ids"]])
    x_BLH = model.encode(ids_BL, torch.zeros_like(ids_BL), torch.zeros_like(ids_BL, dtype=torch.bool))
    logits_PV = model.mlm_logits(x_BLH[ids_BL == tokenizer.mask_id])
    best, ids = logits_PV[0].softmax(-1).topk(count)
    return [(tokenizer.id_to_piece(i), p) for i, p in zip(ids.tolist(), best.tolist(), strict=True)]


TEXTS = ("I am very glad to [MASK] you.", "He put his [MASK] in his pocket.", "She did not [MASK] to go.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Pretrain a small ALBERT on real text.")
    parser.add_argument("corpus", help="folder that `albertine prepare` made")
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    size, peak = 64, 0.01  # sequences of a batch; the learning rate at the end of the warm-up
    torch.manual_seed(1)
    corpus, held_out = Corpus(options.corpus), Corpus(options.corpus, "heldout")
    tokenizer = corpus.tokenizer()
    model = Albert(Config(tokenizer.vocab_size))
    length = model.config.max_length
    print(f"{corpus.num_tokens:,} tokens, {sum(p.numel() for p in model.parameters()):,} parameters")

    optimizer, begin = Lamb(model), time.monotonic()
    for step, batch in enumerate(islice(batches(corpus, size, length, seed=1), options.steps)):
        mlm, order = update(model, optimizer, batch, learning_rate(step / options.steps, peak))
        if step % 100 == 0:
            seconds = time.monotonic() - begin
            print(f"step {step:5}  masked tokens {mlm:.3f}  order {order:.3f}  {seconds:.0f} s", flush=True)
    with torch.no_grad():
        mlm, order = losses(model, next(batches(held_out, 640, length, seed=1)))
    print(f"held-out text  masked tokens {mlm:.3f}  order {order:.3f}")
    for text in TEXTS:
        guesses = (f"{token.strip('▁')} {p:.0%}" for token, p in fill_mask(model, tokenizer, text))
        print(f"{text}\n    {', '.join(guesses)}")


if __name__ == "__main__":
    main()
