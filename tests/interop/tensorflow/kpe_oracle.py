"""kpe's side of the tests, for a Python that has bert-for-tf2==0.14.9 and tensorflow-cpu==2.15.1.

python kpe_oracle.py FOLDER FILE.npz      the states that it computes with a checkpoint of ours
"""

import os
import sys

os.environ["VERBOSE"] = "0"

import keras
import numpy as np
import tensorflow as tf
import tensorflow.python as inner

# It takes Keras from where TensorFlow 2.15 has another one that does not go with it.
inner.keras = sys.modules["tensorflow.python.keras"] = keras

import bert  # noqa: E402
from bert import loader_albert  # noqa: E402

IDS = np.array([[2, 5, 6, 7, 8, 3], [2, 9, 11, 12, 0, 0]], dtype="i4")
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]], dtype="i4")


def run(folder: str, file: str) -> None:
    is_bert = os.path.isfile(os.path.join(folder, "bert_config.json"))
    params = bert.params_from_pretrained_ckpt(folder)
    layer = bert.BertModelLayer.from_params(params, name="bert")
    inputs = [keras.layers.Input((IDS.shape[1],), dtype="int32") for _ in range(2)]
    model = keras.Model(inputs, layer(inputs, mask=tf.not_equal(inputs[0], 0)))
    if not is_bert and "brightmart" not in os.path.basename(folder):
        # By the graph of it, which it does not read, it distinguishes Google's checkpoint from brightmart's.
        open(os.path.join(folder, "model.ckpt-best.meta"), "w").close()
    load = bert.load_stock_weights if is_bert else loader_albert.load_albert_weights
    left = load(layer, os.path.join(folder, "model.ckpt-best"))
    found = model.predict([IDS, SEGMENTS], verbose=0)
    np.savez(file, ids=IDS, segments=SEGMENTS, mask=(IDS > 0).astype("i8"), sequence=found, left=len(left))


if __name__ == "__main__":
    run(*sys.argv[1:])
