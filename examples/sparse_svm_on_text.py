"""A support vector machine on text with a budget: the l1 norm of its weights.

On an l1 ball the radius is what the weights may cost together, so few words get much of it; and the
certificate says how far the result is from the best classifier of that budget.

    python examples/sparse_svm_on_text.py [folder with reuters.trn and reuters.tst]
"""

import sys
import warnings

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier

from adahb.data import load_libsvm
from adahb.linear import HeavyBallClassifier


def made_up(n=1000, words=3000, seed=0):
    """Documents with word frequencies like those of a language, and fifty words that tell."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, words + 1)
    telling = rng.choice(np.arange(20, 1000), 50, replace=False)
    y = rng.choice([-1.0, 1.0], n, p=[0.8, 0.2])
    rows = []
    for label in y:
        p = frequency.copy()
        p[telling[:25] if label > 0 else telling[25:]] *= 20
        counts = rng.multinomial(60, p / p.sum())
        tf = np.log1p(counts) * np.log(1 / (60 * frequency / frequency.sum()).clip(max=0.9))
        rows.append(sparse.csr_array((tf / np.linalg.norm(tf))[None]))
    return sparse.vstack(rows, format="csr"), y


def documents():
    """Reuters newswire about foreign exchange against the rest, or made-up documents."""
    home = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        train, test = load_libsvm("reuters", home), load_libsvm("reuters.t", home)
    except FileNotFoundError:
        X, y = made_up()
        return "made-up documents", X[:700], y[:700], X[700:], y[700:]
    return "Reuters, money-fx", train.X, train.y, test.X, test.y


def main():
    name, X, y, X_test, y_test = documents()
    print(f"{name}: {X.shape[0]} documents, {X.shape[1]} words")
    print("budget  words with 95 % of it  test errors  objective  proved within")
    warnings.simplefilter("ignore", ConvergenceWarning)  # what is proved is printed
    for radius in (5.0, 10.0, 20.0):
        model = HeavyBallClassifier(radius=radius, tol=0.05, max_iter=60, random_state=0).fit(X, y)
        errors = np.mean(model.predict(X_test) != y_test)
        spent = np.cumsum(np.sort(np.abs(model.coef_[0]))[::-1])
        words = 1 + np.searchsorted(spent, 0.95 * spent[-1])
        objective = model.history_["objective"][-1]
        print(f"{radius:6g} {words:22d} {errors:12.2%} {objective:10.4f} {model.gap_:14.4f}")
    peer = SGDClassifier(penalty="l1", alpha=1e-4, random_state=0).fit(X, y)
    errors, used = np.mean(peer.predict(X_test) != y_test), np.count_nonzero(peer.coef_)
    print(f"SGDClassifier(penalty='l1'): {used} words, {errors:.2%} errors, nothing proved")


if __name__ == "__main__":
    main()
