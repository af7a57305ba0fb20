"""Figure 5 of the paper: f(w_t) on the hard function, and the curves a reader will ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adahb import schedules
from adahb.experiments.runs import Hard, Method, Task
from adahb.experiments.store import Json, Store, environment
from adahb.problems import HardFunction
from adahb.schedules import Output

HORIZONS = (1000, 5000)
HB = schedules.HB(alpha=8.0)
ADAHB = schedules.AdaHB(alpha=0.08, gamma=0.9, delta=1e-8)


@dataclass(frozen=True)
class FigureCurve:
    """A curve of the figure: a task, the output looked at, and whether the paper has it."""

    label: str
    task: Task
    output: Output = "last"
    published: bool = False


def curves(T: int, c: float = 2.0) -> list[FigureCurve]:
    """The curves of one panel; the published ones with the paper's constants."""
    problem = Hard(T, c)

    def task(method: Method) -> Task:
        return Task(problem, method, tuple(range(1, T + 1)))

    psg = task(Method(schedules.PSG(alpha=c)))
    return [
        FigureCurve("PSG, last", psg, published=True),
        FigureCurve("PSG, average", psg, "average"),
        FigureCurve("HB", task(Method(HB, "paper")), published=True),
        FigureCurve("HB, averaging form", task(Method(HB, "averaging"))),
        FigureCurve("AdaHB as printed", task(Method(ADAHB, "paper", "euclidean")), published=True),
        FigureCurve("AdaHB, metric", task(Method(ADAHB, "paper", "metric"))),
        FigureCurve("AdaHB, metric, averaging form", task(Method(ADAHB, "averaging", "metric"))),
        FigureCurve("NAG", task(Method(schedules.NAG(alpha=HB.alpha)))),
        FigureCurve(
            "PSG, linear decay (T known)", task(Method(schedules.LinearDecay(alpha=c, horizon=T)))
        ),
    ]


def data(store: Store, horizons: Sequence[int], c: float) -> Json:
    """All that the figure shows, as plain data, at a thousand steps or so a panel."""
    return {
        "figure": "f(w_t) - f* on the hard function",
        "c": c,
        "panels": [
            {
                "T": T,
                "lower_bound": HardFunction(T, c).lower_bound(),
                "step": [t + 1 for t in _shown(T)],
                "curves": [
                    {
                        "label": curve.label,
                        "published": curve.published,
                        "method": curve.task.spec(),
                        "output": curve.output,
                        "value": curve.task.gaps(store, curve.output)[_shown(T)].tolist(),
                    }
                    for curve in curves(T, c)
                ],
            }
            for T in horizons
        ],
        "environment": environment(),
    }


def _shown(T: int) -> list[int]:
    """Indices of the steps that are drawn: evenly spaced, the last one always."""
    return sorted(set(range(T - 1, -1, -max(1, T // 1000))) | {0})
