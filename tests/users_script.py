"""A script as users write them, through every door: checked by mypy, never run."""

import numpy as np
import torch

import adahb
from adahb import HB, NAG, PSG, AdaHB, HeavyBallClassifier, HeavyBallRegressor
from adahb.certificates import Certificate, CuttingPlanes
from adahb.data import load_libsvm
from adahb.interop import keras as for_keras
from adahb.interop import optax as for_optax
from adahb.linear import HistoryDisplay
from adahb.logging import CSVWriter, Row, TensorBoardWriter, quantities, record
from adahb.optim import no_decay_groups
from adahb.problems import LinearObjective
from adahb.reference import Run
from adahb.schedules import Coefficients, Guarantee
from adahb.sets import Box, L1Ball, L2Ball, Simplex


def convex(X: np.ndarray, y: np.ndarray) -> float:
    objective = LinearObjective(X, y, "hinge")
    run: Run = adahb.reference.adahb(objective, 100, alpha=1.0, constraint=L1Ball(2.0))
    certificate: Certificate = run.certificate
    planes = CuttingPlanes(3)
    planes.add(run.w, certificate.value, np.ones(3))
    return certificate.gap + planes.lower_bound(Simplex(1.0))


def schedule() -> tuple[Coefficients, tuple[Guarantee, ...]]:
    chosen = adahb.schedules.AdaHB(alpha=1.0, tick=10)
    return chosen(3), chosen.guarantees


def project(x: np.ndarray, w: torch.Tensor) -> tuple[np.ndarray, torch.Tensor]:
    ball = L2Ball(1.0)
    inside: bool = ball.contains(w)
    assert inside
    return ball.project(x, np.ones(3)), Box(0.0, 1.0).project(w)


def linear(X: np.ndarray, y: np.ndarray) -> float:
    model = HeavyBallClassifier(radius=1.0, tol=1e-2, random_state=0).fit(X, y)
    HistoryDisplay.from_estimator(model)
    gap: float = model.gap_
    predicted = HeavyBallRegressor(loss="huber").fit(X, y).predict(X)
    return gap + float(predicted.mean())


def deep(model: torch.nn.Module, x: torch.Tensor) -> list[Row]:
    optimizer = AdaHB(no_decay_groups(model, 0.1), lr=1e-2, constraint=None)
    for other in (HB, NAG, PSG):
        other(model.parameters(), lr=torch.tensor(0.1), constraint=L2Ball(1.0, dim=1))
    rows: list[Row] = []
    with record(optimizer, every=10, to=rows.append):
        loss: float = optimizer.step(lambda: model(x).sum())
    record(optimizer, to=CSVWriter("run.csv")).remove()
    record(optimizer, to=TensorBoardWriter("runs")).remove()
    with optimizer.averaged_parameters():
        loss += float(model(x).sum())
    careful = AdaHB(model.parameters(), nonfinite="skip")
    skipped: int = careful.skipped_steps
    loss += skipped
    optimizer.load_state_dict(optimizer.state_dict())
    return rows + quantities(optimizer)


def other_frameworks(folder: str) -> tuple[int, ...]:
    transformation = for_optax.adahb(1e-2, constraint=L1Ball(2.0), tick=10)
    state = transformation.init(np.zeros(3))
    for_optax.averaged_parameters(state, np.zeros(3))
    compiled = for_keras.AdaHB(learning_rate=1e-2, tick=10)
    callbacks = [for_keras.TickFromData()]
    rows: tuple[int, ...] = load_libsvm("a9a", folder).X.shape
    return (*rows, len(callbacks), compiled.iterations)
