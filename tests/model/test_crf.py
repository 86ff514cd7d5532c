"""The conditional random field against every sequence of tags there is."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from albertine.model.crf import Crf, CrfTagger
from tests.model import builders

TAGS = 3


def field(seed: int, forbidden: bool = True) -> Crf:
    """Random scores; with `forbidden` tag 2 follows only 1 and 2, and neither begins nor, being 1, ends."""
    allowed = [[True] * (TAGS + 1) for _ in range(TAGS + 1)]
    if forbidden:
        allowed[0][2] = allowed[TAGS][2] = allowed[1][TAGS] = False
    crf = Crf(allowed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return crf


def scores(crf: Crf, logits: Tensor) -> dict[tuple[int, ...], Tensor]:
    """The score of every allowed sequence of one text, in float64, written out."""
    found = {}
    transitions, start, end = (x.double() for x in (crf.transitions, crf.start, crf.end))
    for tags in product(range(TAGS), repeat=len(logits)):
        path = (TAGS, *tags, TAGS)
        if any(crf.penalty[a, b] for a, b in pairwise(path)):
            continue
        total = start[tags[0]] + end[tags[-1]] + sum(logits[i].double()[tag] for i, tag in enumerate(tags))
        total = total + sum(transitions[a, b] for a, b in pairwise(tags))
        found[tags] = torch.as_tensor(total)
    return found


@pytest.mark.parametrize("forbidden", [True, False])
def test_likelihood_and_gradient_are_those_of_the_enumeration(forbidden: bool) -> None:
    crf, lengths = field(1, forbidden), [4, 1, 5]
    logits = torch.randn(10, TAGS, generator=torch.Generator().manual_seed(2), requires_grad=True)
    texts = torch.split(logits, lengths)
    right = [max(scores(crf, text)) for text in texts]  # any sequence that is allowed
    tags = torch.tensor([tag for path in right for tag in path])
    found = crf.log_likelihood(logits, tags, lengths)
    wanted = []
    for text, path in zip(texts, right, strict=True):
        every = scores(crf, text)
        wanted.append(every[path] - torch.stack([*every.values()]).logsumexp(0))
    torch.testing.assert_close(found.double(), torch.stack(wanted), atol=1e-5, rtol=1e-5)
    inputs = [logits, *crf.parameters()]
    ours = torch.autograd.grad(found.sum(), inputs)
    theirs = torch.autograd.grad(torch.stack(wanted).sum(), inputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other.float(), atol=1e-5, rtol=1e-4)
    assert all(bool(x.isfinite().all()) for x in ours)


def test_probabilities_of_all_sequences_sum_to_one() -> None:
    crf, logits = field(3), torch.randn(4, TAGS, generator=torch.Generator().manual_seed(4))
    paths = list(scores(crf, logits))
    assert len(paths) < TAGS**4
    each = crf.log_likelihood(logits.repeat(len(paths), 1), torch.tensor(paths).flatten(), [4] * len(paths))
    assert float(each.exp().sum().detach()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_the_best_sequence_is_that_of_the_enumeration(seed: int) -> None:
    crf, lengths = field(seed), [5, 1, 3, 2]
    logits = 2 * torch.randn(11, TAGS, generator=torch.Generator().manual_seed(10 + seed))
    wanted = []
    for text in torch.split(logits, lengths):
        every = scores(crf, text)
        wanted += max(every, key=lambda path: every[path].item())
    assert crf.best(logits, lengths).tolist() == wanted


@pytest.mark.parametrize("summary", ["first", "last"])
def test_only_the_tokens_inside_count(summary: str) -> None:
    """[CLS] and [SEP] are neither judged nor tagged, and a text without a token is no hindrance."""
    model = CrfTagger(builders.model(summary=summary), [[True] * 4] * 4, seed=5).eval()
    packed = builders.packed([6, 2, 4])
    logits = model(packed)
    inner = torch.tensor([1, 2, 3, 4, 9, 10]) - int(summary == "last")
    tags = torch.full((12,), -100).index_copy(0, inner, torch.tensor([0, 1, 2, 0, 1, 1]))
    wanted = model.crf.log_likelihood(logits[inner], tags[inner], [4, 2]).sum()
    assert torch.equal(model.log_likelihood(logits, packed, tags), wanted)
    best = model.tags(packed)
    assert best[inner].tolist() == model.crf.best(logits[inner], [4, 2]).tolist()
    assert not best.index_fill(0, inner, 0).any()
    empty = builders.packed([2])
    assert float(model.log_likelihood(model(empty), empty, torch.tensor([-100, -100]))) == 0
    assert model.tags(empty).tolist() == [0, 0]
    assert {n for n in model.head if n.startswith("crf.")} == {"crf.transitions", "crf.start", "crf.end"}
