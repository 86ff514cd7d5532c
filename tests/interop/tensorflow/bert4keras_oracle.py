"""bert4keras's side of the tests, for a Python that has bert4keras==0.11.5 and tensorflow-cpu==2.15.1.

python bert4keras_oracle.py write FOLDER                   the checkpoints that are kept in bert4keras/
python bert4keras_oracle.py run FOLDER MODEL FILE.npz      what it computes with a checkpoint of ours
"""

import json
import os
import sys

os.environ["TF_KERAS"] = "0"

import keras
import keras.src.engine.base_layer
import keras.src.engine.node
import numpy as np
import tensorflow as tf

# Where it looks for things that TensorFlow 2.15 keeps elsewhere, or has only outside its eager mode.
keras.engine = keras.src.engine
keras.engine.base_layer.Node = keras.src.engine.node.Node
tf.Session, tf.train.Saver = tf.compat.v1.Session, tf.compat.v1.train.Saver

from bert4keras import models  # noqa: E402
from tensorflow.python.eager import context  # noqa: E402

IDS = np.array([[2, 5, 6, 7, 8, 3], [2, 9, 11, 12, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
SHAPE = {
    "vocab_size": 21,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "hidden_act": "gelu_tanh",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
}
_set = models.K.batch_set_value


def _values(weights):
    with context.eager_mode():
        return [weight.numpy() for weight in weights]


def _put(pairs):
    if tf.executing_eagerly():
        return _set(pairs)
    for variable, value in pairs:
        variable.load(value, tf.compat.v1.get_default_session())


models.K.batch_get_value, models.K.batch_set_value = _values, _put


def build(file, model, **given):
    return models.build_transformer_model(file, model=model, return_keras_model=False, **given)


def outputs(file, model, checkpoint=None, weights=None):
    """The transformer with both heads, and what it computes."""
    given = {"checkpoint_path": checkpoint} if checkpoint else {}
    made = build(file, model, with_nsp=True, with_mlm="linear", **given)
    if weights is not None:
        made.model.set_weights([weights(w) for w in made.model.get_weights()])
    bare = build(file, model, layers=made.layers)
    sentence, mlm = made.model.predict([IDS, SEGMENTS], verbose=0)
    sequence = bare.model.predict([IDS, SEGMENTS], verbose=0)
    found = {"sequence": sequence, "sentence": sentence, "mlm": mlm}
    return made, found | {"ids": IDS, "segments": SEGMENTS, "mask": (IDS > 0).astype("i8")}


def write(folder):
    rng = np.random.default_rng(7)

    def drawn(like):
        return (rng.normal(size=like.shape) * 0.4 + (like.ndim == 1 and np.all(like == 1))).astype("f4")

    bert = {"embedding_size": 8, "hidden_act": "gelu_erf"}
    for name, model, file, change in (
        ("albert", "albert", "albert_config.json", {}),
        ("unshared", "albert_unshared", "albert_config.json", {}),
        ("bert", "bert", "bert_config.json", bert),
    ):
        place = os.path.join(folder, name)
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, file), "w") as stream:
            json.dump(SHAPE | change, stream, indent=2)
        made, found = outputs(os.path.join(place, file), model, weights=drawn)
        made.save_weights_as_checkpoint(os.path.join(place, "model.ckpt"))
        for left in ("model.ckpt.meta", "checkpoint"):
            os.remove(os.path.join(place, left))
        np.savez(os.path.join(place, "outputs.npz"), **found)


def run(folder, model, file):
    name = "bert_config.json" if model == "bert" else "albert_config.json"
    config, checkpoint = (os.path.join(folder, x) for x in (name, "model.ckpt-best"))
    np.savez(file, **outputs(config, model, checkpoint)[1])


if __name__ == "__main__":
    {"write": write, "run": run}[sys.argv[1]](*sys.argv[2:])
