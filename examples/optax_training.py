"""A network in JAX, trained by one compiled loop: its units free, or each confined to a ball.

python examples/optax_training.py
"""

import jax
import numpy as np
import optax
from jax import numpy as jnp
from sklearn.datasets import load_digits

from adahb.interop.optax import adahb
from adahb.sets import L2Ball

EPOCHS, BATCH, UNITS = 20, 64, 64


def start(rng):
    """Two dense layers."""

    def dense(inputs, outputs):
        w = rng.normal(size=(inputs, outputs)) / inputs**0.5
        return {"w": jnp.asarray(w, dtype=jnp.float32), "b": jnp.zeros(outputs)}

    return {"hidden": dense(64, UNITS), "output": dense(UNITS, 10)}


def scores(params, x):
    hidden = jax.nn.relu(x @ params["hidden"]["w"] + params["hidden"]["b"])
    return hidden @ params["output"]["w"] + params["output"]["b"]


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, x), y).mean()


def train(optimizer, x, y, rng):
    """All epochs in one program: however far t advances, nothing is compiled again."""

    def step(carry, rows):
        params, state = carry
        grads = jax.grad(loss)(params, x[rows], y[rows])
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    params = start(rng)
    orders = rng.permuted(np.tile(np.arange(len(x)), (EPOCHS, 1)), axis=1)
    rows = orders[:, : len(x) // BATCH * BATCH].reshape(-1, BATCH)
    run = jax.jit(lambda carry, rows: jax.lax.scan(step, carry, rows))
    (params, _), _ = run((params, optimizer.init(params)), rows)
    return params


def main():
    x, y = load_digits(return_X_y=True)
    x, y = jnp.asarray(x / 16, dtype=jnp.float32), jnp.asarray(y)
    seen, unseen = slice(0, 1400), slice(1400, None)
    columns = L2Ball(1.5, dim=0)  # one ball for the weights into each hidden unit
    groups = {"hidden": {"w": "in balls", "b": "free"}, "output": "free"}
    confined = optax.partition({"in balls": adahb(constraint=columns), "free": adahb()}, groups)
    print("columns   training loss  test accuracy  longest column")
    for name, optimizer in {"free": adahb(), "in balls": confined}.items():
        params = train(optimizer, x[seen], y[seen], np.random.default_rng(0))
        right = jnp.argmax(scores(params, x[unseen]), axis=1) == y[unseen]
        longest = np.linalg.norm(params["hidden"]["w"], axis=0).max()
        at_last = loss(params, x[seen], y[seen])
        print(f"{name:8s}  {at_last:13.5f}  {right.mean():13.3f}  {longest:14.3f}")


if __name__ == "__main__":
    main()
