"""What every route takes and returns, for the OpenAPI document and the page with the routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from albertine.serving import responses, routes, schemas
from albertine.tasks.families import FAMILIES
from albertine.tasks.http import rank
from albertine.tasks.http.base import Body, HttpRoute

TEXT = "The cat sat on the mat."
MASKED = "Paris is the [MASK] of France."


@dataclass(frozen=True)
class Form:
    """One form of a request, and its response.

    Attributes:
        summary: in one line. body: schema of the body; None without one. response: type of the response.
        example: a body that a model with the task answers. needs: what the model must have; empty: nothing.
        media: type of a response that is no JSON. clients: whose client sends it.
    """

    summary: str
    body: type[Body] | None = None
    response: Any = Any
    example: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    media: str = "application/json"
    clients: str = ""


TEI, OPENAI, HUB = "text-embeddings-inference", "OpenAI", "huggingface_hub"
VECTORS = "a model with vectors"
COMPARED = {"inputs": {"source_sentence": TEXT, "sentences": ["There was a cat.", "It rained."]}}
SIMILARITY = Form(
    "The cosine of a text with each of others.",
    *(schemas.TextsToCompare, responses.Numbers, COMPARED, VECTORS),
    clients=TEI,
)
OPENAI_VECTORS = Form(
    "Vectors of length 1, with the tokens used.",
    *(schemas.OpenAiTexts, responses.Embeddings, {"input": [TEXT]}, VECTORS),
    clients=f"{OPENAI}, LangChain",
)
TORCH = "torch (no exported graph)"
COMMON: dict[str, tuple[Form, ...]] = {
    "/": (
        Form(
            "A vector for each text.",
            *(schemas.TextsToEmbed, list[responses.Numbers], {"inputs": TEXT}, VECTORS),
            clients=HUB,
        ),
        Form(
            "Tokens for each mask; of several masks, or several texts, a list of that.",
            schemas.TextsToFill,
            list[responses.Candidate]
            | list[list[responses.Candidate]]
            | list[list[list[responses.Candidate]]],
            {"inputs": MASKED, "parameters": {"top_k": 2}},
            "a masked-LM head",
            clients=HUB,
        ),
        Form(SIMILARITY.summary, SIMILARITY.body, SIMILARITY.response, COMPARED, VECTORS, clients=HUB),
    ),
    "/embed": (
        Form(
            "A vector for each text.",
            *(schemas.TextsToEmbed, list[responses.Numbers], {"inputs": [TEXT]}, VECTORS),
            clients=f"{TEI}, LlamaIndex",
        ),
    ),
    "/embed_all": (
        Form(
            "For each text the last state of every token, special tokens included.",
            *(schemas.TextsToEmbedByToken, list[list[responses.Numbers]], {"inputs": [TEXT]}),
            clients=TEI,
        ),
    ),
    "/embed_sparse": (
        Form(
            "For each text weights of tokens of the vocabulary, as SPLADE.",
            *(schemas.TextsToEmbedByToken, list[list[responses.Weight]], {"inputs": [TEXT]}),
            needs="a masked-LM head",
            clients=TEI,
        ),
    ),
    "/rerank": (
        Form(
            "Texts in the order of the cosine with a query.",
            *(rank.TextsToRank, rank.Ranking, rank.EXAMPLE, VECTORS),
            clients=f"{TEI}, LlamaIndex, Cohere, Infinity",
        ),
    ),
    "/similarity": (SIMILARITY,),
    "/tokenize": (
        Form(
            "The tokens of each text.",
            *(schemas.TextsToCut, list[list[responses.Token]], {"inputs": [TEXT]}),
            clients=TEI,
        ),
    ),
    "/decode": (
        Form(
            "The text of each list of token ids.",
            *(schemas.IdsToDecode, list[str], {"ids": [[2, 5, 3]]}),
            clients=TEI,
        ),
    ),
    "/embeddings": (OPENAI_VECTORS,),
    "/v1/embeddings": (OPENAI_VECTORS,),
    "/sentence-order": (
        Form(
            "The probability that two passages are in their order.",
            schemas.TwoPassages,
            responses.SentenceOrder,
            {"first": "It rained.", "second": "So they stayed at home."},
            f"a head of sentence order, {TORCH}",
        ),
    ),
    "/analyze/lens": (
        Form(
            "The guesses of the masked-LM head after every layer.",
            *(schemas.TextOfLens, responses.Lens, {"inputs": MASKED}, f"a masked-LM head, {TORCH}"),
        ),
    ),
    "/analyze/attention": (
        Form(
            "Attention weights of every layer and head.",
            *(schemas.TextOfAttention, responses.Attention, {"inputs": TEXT}, TORCH),
        ),
    ),
    "/analyze/layers": (
        Form(
            "Statistics of the states of every layer.",
            *(schemas.TextsOfLayers, responses.Layers, {"inputs": [TEXT, "It rained."]}, TORCH),
        ),
    ),
}
"""By path the forms of requests with a body that do not depend on the family of the model."""
HEALTH = Form("Whether the model answers: a real prediction, if there was none for ten seconds.")
MODEL = "/v1/models/{name}"
GOT: dict[str, Form] = {
    "/": Form("The page for a browser.", media="text/html"),
    "/docs": Form("This list as a page.", media="text/html"),
    "/openapi.json": Form("This list as an OpenAPI document.", response=dict[str, Any]),
    "/info": Form("Model, version and limits.", response=responses.Info, clients=TEI),
    "/v1/models": Form("The models of the server.", response=responses.OpenAiModels, clients=OPENAI),
    MODEL: Form("One of them.", response=responses.OpenAiModel, clients=OPENAI),
    "/analyze/model": Form("Sharing plan, sizes, costs, card, views.", response=responses.ModelFacts),
    "/health": Form(HEALTH.summary, response=responses.Health, clients=TEI),
    "/health/ready": Form(HEALTH.summary, response=responses.Health),
    "/health/live": Form("Whether the process answers.", media="text/plain"),
    "/metrics": Form("Counters for Prometheus.", media="text/plain", clients="Prometheus"),
}
"""By path what is read without a body, except the files of the page."""
OF_ADMINISTRATOR = "the token of the administrator"
CHANGED: dict[tuple[str, str], Form] = {
    (MODEL, "put"): Form(
        "Load a model, or replace that of the same name after its golden answers were checked.",
        *(schemas.ModelToLoad, responses.OpenAiModel, {"model": "albertine-mini-en"}, OF_ADMINISTRATOR),
    ),
    (MODEL, "delete"): Form(
        "Unload a model.", response=responses.OpenAiDeleted, needs=OF_ADMINISTRATOR, clients=OPENAI
    ),
}
"""By path and method what changes the models of the server."""


def posted() -> dict[str, tuple[Form, ...]]:
    """By path the forms of all requests with a body, those of families among them."""
    found = {path: COMMON.get(path, ()) for path in routes.handlers()}
    for known in FAMILIES.values():
        if known.http is None:
            continue
        task = known.http()
        for path, route in task.routes.items():
            found[path] += (_of_family(route, f"a model that {task.does or f'can {known.words}'}", path),)
    return found


def _of_family(route: HttpRoute, needs: str, path: str) -> Form:
    summary = (route.__doc__ or "").strip().split("\n\n")[0].partition(": ")[2] or "Predictions."
    summary = " ".join(summary.split())
    clients = HUB if path in ("/", "/zero-shot") else TEI if path in ("/predict", "/rerank") else ""
    return Form(
        summary[0].upper() + summary[1:],
        *(route.schema, route.response_type, route.example, needs),
        clients=clients,
    )
