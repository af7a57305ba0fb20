"""Where the paper's text and its proofs part, and what this library does about it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Erratum:
    """One place in the paper; ``shown_by`` names the claims that measure it."""

    title: str
    problem: str
    remedy: str
    shown_by: tuple[str, ...] = ()


ERRATA = (
    Erratum(
        "Lemma 2 is not an equality while the constraint is active",
        "w₊ + p₊ leaves the set, so it cannot be a projection onto it. The inequality that the "
        "rate needs survives, but not the step from a bounded set to a bounded ‖w* - (w + p)‖.",
        "The averaging form projects z instead of w. Then z stays in the set and the proof holds "
        "as it stands. It is the default of the reference; form='paper' is the printed recursion.",
        ("C8 Lemma 2", "C8 Lemma 2, free"),
    ),
    Erratum(
        "Algorithm 1 projects in the wrong metric",
        "It prints the Euclidean projection; the proof of Theorem 5 uses the one in the metric V̂. "
        "With the Euclidean one the method stops at the wrong point on sets that are not boxes.",
        "projection='metric' is the default; projection='euclidean' is Algorithm 1 to the letter.",
        ("C8 Theorem 5", "C8 Theorem 5, printed", "C2 printed"),
    ),
    Erratum(
        "The hard function has lost a row",
        "The original has T + 1 rows, of which the paper prints T with the last diagonal entry "
        "dropped. Keeping that entry and dropping the row would make the minimum negative.",
        "HardFunction has both readings and defaults to the original.",
    ),
    Erratum(
        "Constant momentum has two step sizes",
        "The line of Algorithm 1 reads αβ/(t√t); the equation for constant momentum and Theorem 6 "
        "have α/√t.",
        "AdaHBConstant has α/√t, for which the theorem is proved.",
        ("C4 AdaHB", "C8 Theorem 6"),
    ),
    Erratum(
        "The average lacks its 1/t",
        "The definition of the averaged output is a sum; every statement about it means the mean.",
        "The average is (1/T)(w_1 + ... + w_T).",
    ),
    Erratum(
        "The clock of the deep experiments is the epoch",
        "The theorems count steps; the experiments on networks let t be the epoch, about which "
        "nothing is proved.",
        "tick=1 is the theory. A schedule with tick > 1 claims no guarantee.",
    ),
)
