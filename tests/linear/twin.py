"""The readable twin of every loop: `adahb.reference.run` on the same order of samples."""

import numpy as np
from scipy import sparse

from adahb import reference
from adahb.linear.loops.base import FreeLast
from adahb.problems import LinearObjective


class Weighted(LinearObjective):
    """Each sample's derivative is multiplied by its weight over their mean."""

    def __init__(self, X, y, loss, weights):
        super().__init__(X, y, loss)
        self.weights = weights / weights.mean()

    def combine(self, derivatives, rows):
        return super().combine(derivatives * self.weights[rows], rows)


def epochs(n, count, seed=0):
    """The order in which ``sampling="epochs"`` visits the rows."""
    rngs = (np.random.default_rng([seed, epoch]) for epoch in range(count))
    return np.concatenate([rng.permutation(n) for rng in rngs])


def reference_run(X, y, loss, schedule, epochs, *, constraint=None, batch_size=1,
                  fit_intercept=False, sample_weight=None, start=None, intercept_start=0.0,
                  form="averaging", projection="metric", seed=0):  # fmt: skip
    """The run of the reference that visits the rows as `epochs` says."""
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    X = X.astype(np.float64)
    w0 = None if start is None else np.array(start, dtype=float)
    if fit_intercept:
        w0 = np.append(np.zeros(X.shape[1]) if w0 is None else w0, intercept_start)
        X = np.hstack([X, np.ones((len(X), 1))])
        constraint = None if constraint is None else FreeLast(constraint)
    weights = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    return reference.run(
        Weighted(X, y, loss, weights), epochs * -(-len(X) // batch_size), schedule, w0=w0,
        constraint=constraint, form=form, projection=projection, batch_size=batch_size,
        sampling="epochs", seed=seed, record=10**9,
    )  # fmt: skip


def assert_equal_to_reference(machine, run, tolerance=1e-10):
    """The machine stands where the run stands; ``tolerance`` is relative to the size of w."""
    d = machine.n_features
    for mine, theirs in (
        (machine.coef, run.state.point.w[:d]),
        (machine.average_coef, run.state.average[:d]),
        (machine.dual_sums, run.state.evidence.sums),
    ):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance * (1 + abs(theirs).max()))
    if machine.model.intercept:
        np.testing.assert_allclose(machine.intercept, run.state.point.w[d], rtol=tolerance * 10)
        np.testing.assert_allclose(
            machine.average_intercept, run.state.average[d], rtol=tolerance * 10
        )
    np.testing.assert_array_equal(machine.visits, run.state.evidence.visits)
    assert machine.steps == run.state.step
