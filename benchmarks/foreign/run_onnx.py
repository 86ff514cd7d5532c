"""The side of sentence-transformers and optimum-onnx of `benchmarks.foreign_runtimes`, for a Python that has
both.

Reads [{"folder": …, "texts": […], "class": …}] from its input: "SentenceTransformer", or one of optimum's.
Writes for each question a list of numbers a text: its vector, or the outputs of the graph for its real
tokens.
"""

import contextlib
import json
import sys

import numpy as np

GRAPH = {"subfolder": "onnx", "file_name": "model.onnx"}


def vectors(folder, texts):
    """Its ONNX backend takes `onnx/model.onnx` of the folder."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, backend="onnx", device="cpu")
    return [one.tolist() for one in np.asarray(model.encode(texts))]


def graph(folder, texts, name):
    """The first output of optimum's class, text by text beside others that are longer: padding is in play."""
    import optimum.onnxruntime
    from transformers import AutoTokenizer

    model = getattr(optimum.onnxruntime, name).from_pretrained(folder, **GRAPH)
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    found = model(**batch)[0].numpy()
    if found.ndim == 2:
        return found.tolist()
    return [one[mask].tolist() for one, mask in zip(found, batch["attention_mask"].bool().numpy())]  # noqa: B905


def main():
    answers = []
    with contextlib.redirect_stdout(sys.stderr):
        for question in json.load(sys.stdin):
            folder, texts, name = (question[key] for key in ("folder", "texts", "class"))
            of_texts = name == "SentenceTransformer"
            answers.append(vectors(folder, texts) if of_texts else graph(folder, texts, name))
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
