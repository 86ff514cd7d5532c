"""keras-xlnet's side of the tests, for a Python that has keras-xlnet==0.20.0 and tensorflow-cpu==2.15.1.

python keras_xlnet_oracle.py FOLDER FILE.npz      what it computes with a checkpoint of ours
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from keras.src.engine.base_layer import Layer

# The memory hands its update over together with its inputs, which TensorFlow 2.15 no longer takes.
_add_update = Layer.add_update
Layer.add_update = lambda self, updates, inputs=None: _add_update(self, updates)

from keras_xlnet import load_trained_model_from_checkpoint  # noqa: E402

PAD = 5  # what it takes for padding, whatever the vocabulary
IDS = np.array([[7, 9, 11, 8, 4, 3], [12, 4, 3, PAD, PAD, PAD]])
SEGMENTS = np.array([[0, 0, 1, 1, 1, 2], [0, 0, 2, 3, 3, 3]])
NEXT = np.array([[8, 6, 13, 9, 20, 3], [10, 7, 7, 14, 4, 3]])


def model(folder, **given):
    names = (os.path.join(folder, name) for name in ("xlnet_config.json", "model.ckpt-best"))
    sizes = {"batch_size": 2, "memory_len": 6, "target_len": 6}
    return load_trained_model_from_checkpoint(*names, **sizes, **given)


def main(folder, file):
    def outputs(made, ids, remembered, *more):
        length = np.full((2, 1), remembered)
        return made.predict([ids, SEGMENTS, length, *more], batch_size=2, verbose=0)

    whole = np.where(IDS == PAD, 9, IDS)  # what is remembered, it looks at, padding too
    reading, query = model(folder), model(folder, in_train_phase=True, permute=False)
    found = {"states": outputs(reading, IDS, 0)}
    outputs(reading, whole, 0)
    found["after"] = outputs(reading, NEXT, 6)
    found["chances"] = outputs(query, NEXT, 0, np.ones_like(NEXT))
    given = {
        "ids": IDS,
        "segments": SEGMENTS,
        "mask": (IDS != PAD).astype("i8"),
        "whole": whole,
        "next": NEXT,
    }
    np.savez(file, **given, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
