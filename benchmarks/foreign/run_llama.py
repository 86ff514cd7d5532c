"""llama.cpp's side of `benchmarks.foreign_runtimes`, for a Python that has llama-cpp-python.

Reads [{"file": …, "texts": […], "each": …}] from its input: `each` for a vector a token, otherwise one a text
by the pooling that the file names. Writes [[[tokens, numbers], …], …].
"""

import ctypes
import json
import sys

import numpy as np
from llama_cpp import llama_cpp as llama

MOST = 512  # tokens
RANK = 4


@llama.llama_log_callback
def _quiet(level, text, _):
    if level >= 4:
        sys.stderr.write(text.decode(errors="replace"))


def opened(file, each):
    """Model and context, one thread, exact attention."""
    given = llama.llama_model_default_params()
    given.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(file.encode(), given)
    parameters = llama.llama_context_default_params()
    parameters.embeddings, parameters.n_threads, parameters.n_threads_batch, parameters.flash_attn_type = (
        True,
        1,
        1,
        0,
    )
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = MOST
    if each:
        parameters.pooling_type = 0
    return model, llama.llama_init_from_model(model, parameters)


def tokens(model, text):
    """As llama.cpp cuts a text, special tokens with it."""
    data, buffer = text.encode(), (llama.llama_token * MOST)()
    count = llama.llama_tokenize(
        llama.llama_model_get_vocab(model), data, len(data), buffer, MOST, True, False
    )
    return list(buffer[:count])


def answer(model, context, ids, each):
    """The numbers of one text."""
    batch = llama.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for place, token in enumerate(ids):
        batch.token[place], batch.pos[place], batch.logits[place] = token, place, 1
        batch.n_seq_id[place], batch.seq_id[place][0] = 1, 0
    if llama.llama_encode(context, batch) != 0 and llama.llama_decode(context, batch) != 0:
        raise SystemExit("llama.cpp computes nothing")
    width = llama.llama_model_n_embd(model)
    if each:
        found = np.ctypeslib.as_array(llama.llama_get_embeddings(context), (len(ids) * width,))
        found = found.reshape(len(ids), width)
    else:
        ranks = llama.llama_pooling_type(context) == RANK
        size = llama.llama_model_n_cls_out(model) if ranks else width
        found = np.ctypeslib.as_array(llama.llama_get_embeddings_seq(context, 0), (size,))
    found = found.tolist()
    llama.llama_batch_free(batch)
    return found


def main():
    llama.llama_log_set(_quiet, ctypes.c_void_p())
    llama.llama_backend_init()
    answers = []
    for question in json.load(sys.stdin):
        model, context = opened(question["file"], question["each"])
        cut = [tokens(model, text) for text in question["texts"]]
        answers.append([[ids, answer(model, context, ids, question["each"])] for ids in cut])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
