"""AdaHB in skorch: a network as a scikit-learn estimator, its options searched over as usual.

python examples/skorch_classifier.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier

from adahb import AdaHB


def main():
    torch.manual_seed(0)
    digits = load_digits()
    X, y = digits.data.astype("float32") / 16, digits.target
    network = NeuralNetClassifier(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)),
        criterion=torch.nn.CrossEntropyLoss,
        optimizer=AdaHB,
        lr=1e-2,
        batch_size=64,
        max_epochs=10,
        train_split=None,
        verbose=0,
    )
    search = GridSearchCV(network, {"optimizer__tick": [1, 100]}, cv=2).fit(X, y)
    for options, score in zip(
        search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
    ):
        print(f"tick {options['optimizer__tick']:3d}: accuracy {score:.3f}")
    losses = search.best_estimator_.history[:, "train_loss"]
    print(f"loss {losses[0]:.3f} in the first epoch, {losses[-1]:.3f} in the tenth")


if __name__ == "__main__":
    main()
