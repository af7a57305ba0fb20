"""The canonical order: what it depends on, and what it does not."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from adahb.linear.order import MOST_REPEATS, Visits, canonical, repetitions


def rows(seed, n=25, d=4):
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 2, (n, d)).astype(float), rng.integers(0, 2, n).astype(float)


def visited(X, y, weights=None, seed=3, epoch=0, shuffle=True):
    order = Visits.of(X, y, weights, shuffle=shuffle, seed=seed).epoch(epoch)
    return np.column_stack([X, y])[order]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_it_does_not_depend_on_where_the_rows_stand(seed):
    X, y = rows(seed)
    p = np.random.default_rng(seed + 1).permutation(y.size)
    np.testing.assert_array_equal(visited(X, y), visited(X[p], y[p]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_weights_are_repetitions(seed):
    X, y = rows(seed)
    counts = np.random.default_rng(seed).integers(0, 5, y.size)
    counts[0] = 2
    repeated, targets = np.repeat(X, counts, axis=0), np.repeat(y, counts)
    p = np.random.default_rng(seed + 1).permutation(targets.size)
    for shuffle in (True, False):
        place = p if shuffle else np.arange(targets.size)
        np.testing.assert_array_equal(
            visited(X, y, counts.astype(float), shuffle=shuffle),
            visited(repeated[place], targets[place], shuffle=shuffle),
        )


def test_it_does_not_depend_on_the_order_of_the_columns():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 5)).round(1), rng.integers(0, 2, 40).astype(float)
    X[rng.random(X.shape) < 0.5] = 0
    p = rng.permutation(5)
    np.testing.assert_array_equal(canonical(X, y), canonical(np.ascontiguousarray(X[:, p]), y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_dense_and_sparse_rows_have_one_order(dtype, index):
    X, y = rows(1)
    X = X.astype(dtype)
    S = sparse.csr_array(X)
    S.indices, S.indptr = S.indices.astype(index), S.indptr.astype(index)
    backwards = np.concatenate([np.arange(a, b)[::-1] for a, b in pairwise(S.indptr)])
    unsorted = sparse.csr_array((S.data[backwards], S.indices[backwards], S.indptr), S.shape)
    stored_zero = sparse.csr_array(np.ones_like(X))
    stored_zero.data[:] = X.ravel()
    expected = canonical(X, y)
    for other in (np.asfortranarray(X), S, unsorted, stored_zero):
        np.testing.assert_array_equal(canonical(other, y), expected)


def test_epochs_are_permutations_of_their_own():
    X, y = rows(2)
    visits = Visits.of(X, y, None, shuffle=True, seed=5)
    first, second = visits.epoch(0).copy(), visits.epoch(1).copy()
    assert (first != second).any()
    for order in (first, second):
        np.testing.assert_array_equal(np.sort(order), np.arange(y.size))
    np.testing.assert_array_equal(visits.epoch(0), first)
    other = Visits.of(X, y, None, shuffle=True, seed=6)
    assert (other.epoch(0) != first).any()


def test_given_order():
    X, y = rows(2, n=4)
    weights = np.array([2.0, 0.0, 1.0, 1.0])
    visits = Visits.of(X, y, weights, shuffle=False, seed=0)
    np.testing.assert_array_equal(visits.epoch(7), [0, 0, 2, 3])
    assert visits.scale is None
    pieces = list(visits.pieces(0, batch_size=1, most=3))
    assert [p.tolist() for p in pieces] == [[0, 0, 2], [3]]
    assert [p.size for p in visits.pieces(0, batch_size=2, most=3)] == [2, 2]


def test_weights_that_are_not_repeated():
    X, y = rows(2, n=4)
    for weights in ([0.5, 0.0, 1.0, 2.0], [0.0, 4.0 * MOST_REPEATS + 1, 0.0, 0.0]):
        weights = np.array(weights)
        assert repetitions(weights) is None
        visits = Visits.of(X, y, weights, shuffle=False, seed=0)
        np.testing.assert_array_equal(visits.epoch(0), np.flatnonzero(weights))
        np.testing.assert_array_equal(visits.scale, weights)
    np.testing.assert_array_equal(repetitions(np.full(4, float(MOST_REPEATS))), [MOST_REPEATS] * 4)
