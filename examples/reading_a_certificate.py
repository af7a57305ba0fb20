"""What a certificate says, held against the true optimum, which an exact solver knows.

``gap_`` bounds objective - optimum without knowing the optimum.  Here the optimum is computed by
linear programming as well, to see by how much the certificate exaggerates.

    python examples/reading_a_certificate.py
"""

import numpy as np

from adahb.experiments.hinge import hinge, optimum
from adahb.linear import HeavyBallClassifier


def main():
    data, best = hinge("breast_cancer"), optimum("breast_cancer", 1.0).value
    model = HeavyBallClassifier(
        radius=1.0, fit_intercept=False, tol=1e-2, max_iter=1000, random_state=0
    ).fit(data.X, data.y)
    print("epoch  objective  certified gap  true gap")
    history = model.history_
    shown = np.unique(np.geomspace(1, len(history["epoch"]), 8).astype(int)) - 1
    for k in shown:
        objective, gap = history["objective"][k], history["gap"][k]
        print(f"{history['epoch'][k]:5d}  {objective:9.5f}  {gap:13.5f}  {objective - best:8.5f}")
    print(
        f"stopped after {model.n_iter_} epochs, at a gap of {model.gap_:.5f}: proved, not guessed"
    )


if __name__ == "__main__":
    main()
