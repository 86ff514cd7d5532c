"""Serves exported folders in a process that cannot import torch; run as a program by
`tests.inference.test_torch_free`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.serving.served import client_of

TEXTS = ["the old man", "a house was good , and it was never bad", "who"]
QUESTION = {"question": "who was old ?", "context": "the old man said that the house was good"}
POSTED: dict[str, list[tuple[str, Any]]] = {
    "single": [
        ("/", {"inputs": TEXTS}),
        ("/predict", {"inputs": [["the man"], ["a house", "was good"]], "raw_scores": True}),
    ],
    "crf": [("/", {"inputs": TEXTS})],
    "answer": [("/", {"inputs": QUESTION}), ("/", {"inputs": QUESTION, "parameters": {"top_k": 4}})],
    "answer or not": [("/", {"inputs": QUESTION})],
    "choose": [("/choose", {"passage": "the man _ good", "options": ["was", "said", "never in a house"]})],
    "relate": [("/relate", {"inputs": TEXTS})],
    "embed": [
        ("/embed", {"inputs": TEXTS}),
        ("/v1/embeddings", {"input": TEXTS[0]}),
        ("/", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS}}),
        ("/rerank", {"query": TEXTS[0], "texts": TEXTS}),
        ("/tokenize", {"inputs": TEXTS}),
        ("/embed_all", {"inputs": TEXTS}),
    ],
    "fill-mask": [
        ("/", {"inputs": "the [MASK] man said [MASK] house"}),
        ("/embed_sparse", {"inputs": TEXTS}),
        ("/decode", {"ids": [2, 5, 6]}),
    ],
}
"""Requests to each folder: routes and bodies."""


def posted(folder: str, questions: list[tuple[str, Any]]) -> list[Any]:
    """The answers of a server of a folder."""
    with client_of(Path(folder)) as client:
        assert client.get("/").headers["content-type"].startswith("text/html")
        facts = client.get("/analyze/model").json()
        assert (facts["costs"] is None) == ("torch" in str(facts["views"]["sentence-order"]))
        found = []
        for path, body in questions:
            answer = client.post(path, json=body)
            assert answer.status_code == 200, answer.text
            reply = answer.json()
            if isinstance(reply, dict):
                reply.pop("model", None)  # each folder has a name of its own
            found.append(reply)
        return found


if __name__ == "__main__":
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it raises ModuleNotFoundError
    requests = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = [posted(folder, own) for folder, own in requests.items()]
    assert "torch" not in {name for name, module in sys.modules.items() if module is not None}
    print(json.dumps(answers))
