"""A Keras model whose optimizer counts epochs, is saved with it, and goes on where it stopped.

KERAS_BACKEND=torch python examples/keras_training.py
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from sklearn.datasets import load_digits

from adahb.interop.keras import AdaHB, TickFromData, Within
from adahb.sets import L2Ball


def network():
    """Two dense layers; the weights into each hidden unit stay in a ball."""
    confined = Within(L2Ball(1.5, dim=0))
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu", kernel_constraint=confined),
            keras.layers.Dense(10),
        ]
    )


def main():
    keras.utils.set_random_seed(0)
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    model = network()
    model.compile(
        AdaHB(3e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    options = {"batch_size": 64, "verbose": 0, "callbacks": [TickFromData()]}
    model.fit(x[:1400], y[:1400], epochs=5, **options)
    print(f"on {keras.backend.backend()}, tick = {model.optimizer.tick} steps of an epoch")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        model.save(path)
        again = keras.models.load_model(path)
    again.fit(x[:1400], y[:1400], epochs=5, **options)
    for name, trained in (("5 epochs", model), ("saved, loaded, 10 epochs", again)):
        loss, _ = trained.evaluate(x[:1400], y[:1400], verbose=0)
        _, accuracy = trained.evaluate(x[1400:], y[1400:], verbose=0)
        print(f"{name:25s} training loss {loss:.5f}, test accuracy {accuracy:.3f}")
    columns = np.linalg.norm(again.layers[0].get_weights()[0], axis=0)
    print(f"longest column {columns.max():.3f}")


if __name__ == "__main__":
    main()
