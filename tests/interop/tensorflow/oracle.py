"""TensorFlow's side of the tests of checkpoints, for a Python that has tensorflow-cpu==2.15.1.

python oracle.py read PREFIX FILE.npz     the tensors of a checkpoint, as TensorFlow reads them
python oracle.py write FOLDER             the checkpoints that are kept here
"""

import sys

import numpy as np
import tensorflow as tf

DTYPES = [tf.float32, tf.float64, tf.bfloat16, tf.float16]


def read(prefix: str, file: str) -> None:
    reader = tf.train.load_checkpoint(prefix)
    names = reader.get_variable_to_shape_map()
    np.savez(file, **{name: np.asarray(reader.get_tensor(name)).astype("f8") for name in names})


def values() -> dict[str, tf.Tensor]:
    """Tensors whose numbers `tests/interop/test_tensorflow_bundle.py` knows by a formula."""
    found = {
        f"bert/encoder/layer_{i}/output/dense/kernel": tf.cast(
            tf.reshape(tf.range(6.0), (2, 3)) * 0.25 - i, DTYPES[i % 4]
        )
        for i in range(24)
    }
    return found | {
        "global_step": tf.constant(1234567890123, tf.int64),
        "a/text": tf.constant(["no", "number"]),
        "a/scalar": tf.constant(2.5),
        "a/nothing": tf.zeros((0, 3)),
    }


def save(prefix: str, tensors: dict[str, tf.Tensor]) -> None:
    blank = [""] * len(tensors)
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(tensors), shape_and_slices=blank, tensors=list(tensors.values())
    )


def write(folder: str) -> None:
    found = values()
    save(f"{folder}/one", found)
    parts = []
    for k in range(3):
        parts.append(f"{folder}/part{k}")
        save(parts[-1], {name: found[name] for name in list(found)[k::3]})
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=parts, destination_prefix=f"{folder}/three", delete_old_dirs=False
    )


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
