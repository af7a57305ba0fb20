"""What is fuzzed of state dicts: any change to one that an optimizer has made."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from adahb import HB, NAG, PSG, AdaHB
from adahb.sets import Box, L1Ball, Simplex

from .fuzz import Choices, Target

RIGHT, REFUSED = "right answer", "clear error"
SHAPES = ((2, 3), (4,))
MAKERS = {
    "AdaHB": lambda p: AdaHB(p, lr=0.1, tick=2),
    "AdaHB z": lambda p: AdaHB(p, lr=0.1, tick=1, constraint=L1Ball(0.5)),
    "AdaHB box": lambda p: AdaHB(p, lr=0.1, constraint=Box(-0.2, 0.2), form="paper"),
    "AdaHB average": lambda p: AdaHB(p, lr=0.1, momentum=0.9),
    "AdaHB int8": lambda p: AdaHB(p, lr=0.1, state_dtype="int8"),
    "AdaHB bf16": lambda p: AdaHB(p, lr=torch.tensor(0.1), state_dtype="bf16"),
    "AdaHB compensated": lambda p: AdaHB(p, lr=0.1, rounding="compensated"),
    "HB": lambda p: HB(p, lr=0.1, tick=3, weight_decay=0.1),
    "NAG": lambda p: NAG(p, lr=0.1, constraint=L1Ball(2.0)),
    "PSG": lambda p: PSG([{"params": [x]} for x in p], lr=0.1),
}
TENSORS = (
    *(torch.tensor(x) for x in (math.nan, math.inf, -1, 0, 1.5, 2**40, 2**62, -(2**62), True, 1j)),
    *(torch.tensor(3), torch.tensor(3, dtype=torch.int32), torch.tensor(3, dtype=torch.uint8)),
    *(torch.zeros(shape) for shape in (*SHAPES, (0,), (6,), (2, 3, 1), (1,))),
    *(torch.full(s, x) for s in SHAPES for x in (math.nan, math.inf, -1.0, 1e38, 1e-45)),
    *(torch.zeros(s, dtype=d) for s in SHAPES for d in (torch.float64, torch.float16, torch.int8)),
    *(torch.zeros(SHAPES[0], dtype=d) for d in (torch.complex64, torch.bool, torch.bfloat16)),
    torch.zeros(SHAPES[0]).to_sparse(),
    torch.zeros(SHAPES[0], device="meta"),
    torch.tensor(0, device="meta"),
    torch.zeros(1).expand(SHAPES[0]),
    torch.zeros(SHAPES[0], requires_grad=True),
    torch.zeros(3, 2).T,
)
PLAIN = (
    *(None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**400, 0.5, -0.5, 1e300, math.nan, math.inf),
    *("", "x", "averaging", "paper", "metric", "bf16", "int8", "compensated", "stochastic", b"x"),
    *(
        [],
        [0],
        [0, 0],
        [1, 0],
        [[]],
        [0, 1, 2],
        {},
        {"x": 1},
        (),
        (0, 1),
        {0},
        object,
        "clock",
        "u",
    ),
    *({"kind": "L1Ball"}, {"kind": []}, {"kind": "Box", "lower": "a", "upper": 1}, {"kind": None}),
    *({"kind": "L1Ball", "radius": -1}, {"kind": "L1Ball", "radius": 1.0, "dim": 9}, L1Ball(1.0)),
    *(
        {"kind": "Affine", "A": [[1], [2, 3]], "b": [1]},
        {"kind": "Box", "lower": 0.0, "upper": 1.0},
    ),
    *({"kind": "L1Ball", "radius": 1.0, "dim": None}, {"kind": "NuclearBall", "radius": 1.0}),
    *({"kind": "WeightedL1Ball", "weights": [1.0, -1.0], "radius": 1.0}, Simplex(1.0)),
)


def states_target(_: Path) -> Target:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # parameters that start outside of a set are projected
    return Target(_Attempt([_Case(make) for make in MAKERS.values()]))


class _Case:
    """An optimizer in the middle of a run, and its state then."""

    def __init__(self, make: Any) -> None:
        torch.manual_seed(0)
        self.params = [torch.nn.Parameter(0.05 * torch.randn(shape)) for shape in SHAPES]
        self.optimizer = make(self.params)
        for _ in range(3):
            self.step()
        self.saved = copy.deepcopy(self.optimizer.state_dict())
        self.start = [p.detach().clone() for p in self.params]

    def step(self) -> None:
        for p in self.params:
            p.grad = torch.full_like(p, 0.3)
        self.optimizer.step()

    def contents(self) -> Iterator[Any]:
        """What must not change when a state is refused: the same objects, the same options."""
        for p in self.params:
            yield tuple((key, id(value)) for key, value in self.optimizer.state[p].items())
        for group in self.optimizer.param_groups:
            yield tuple((key, id(value)) for key, value in group.items())

    def again(self) -> None:
        """Go back to where it was."""
        self.optimizer.load_state_dict(self.saved)
        with torch.no_grad():
            for p, before in zip(self.params, self.start, strict=True):
                p.copy_(before)


class _Attempt:
    def __init__(self, cases: list[_Case]) -> None:
        self.cases = cases

    def __call__(self, data: bytes) -> str:
        choose = Choices(data)
        case = choose.pick(self.cases)
        given: Any = _copied(case.saved)
        for _ in range(1 + choose.below(3)):
            given = _changed(given, choose, self.cases)
        before = list(case.contents())
        try:
            case.optimizer.load_state_dict(given)
        except (TypeError, ValueError) as refusal:
            error = refusal
        else:
            return self._taken(case, given)
        said = str(error)
        assert "must" in said or "have" in said or "has" in said, f"not clear: {error!r}"
        assert list(case.contents()) == before, "refused, and yet something has changed"
        return REFUSED

    def _taken(self, case: _Case, given: Any) -> str:
        """What is taken up is what was given, and a step from there ends in numbers."""
        try:
            for key, entry in given["state"].items():
                keys = [k for group in given["param_groups"] for k in group["params"]]
                state = case.optimizer.state[case.params[keys.index(key)]]
                for name in entry:
                    if name in state and name != "clock":
                        same = torch.equal(state[name].nan_to_num(7), entry[name].nan_to_num(7))
                        assert same, f"{name} has become another"
                        assert state[name] is not entry[name]
            finite = all(
                bool(t.isfinite().all()) for s in given["state"].values() for t in s.values()
            )
            groups = case.optimizer.param_groups
            large = any(float(group["lr"]) > 1e6 or group["weight_decay"] > 1e6 for group in groups)
            tame = finite and not large and not _huge(given)
            said = _of_a_step(case)
            plain = any(group["differentiable"] for group in groups) and "leaf" in said
            assert "must" in said or plain or not said, said
            assert not tame or plain or not said, said
            assert not tame or all(bool(p.isfinite().all()) for p in case.params), "not finite"
        finally:
            case.again()
        return RIGHT


def _of_a_step(case: _Case) -> str:
    """What a step says where it cannot be made; differentiable steps from leaves are torch's."""
    try:
        case.step()
    except (ValueError, RuntimeError) as refusal:
        return str(refusal)
    return ""


def _huge(given: Any) -> bool:
    return any(
        t.is_floating_point() and t.numel() and float(t.abs().max()) > 1e18
        for s in given["state"].values()
        for t in s.values()
    )


def _copied(saved: Any) -> Any:
    """The same dicts and lists anew, with the same tensors."""
    if isinstance(saved, dict):
        return {key: _copied(value) for key, value in saved.items()}
    return [_copied(value) for value in saved] if isinstance(saved, list) else saved


def _changed(given: Any, choose: Choices, cases: list[_Case]) -> Any:
    how = choose.below(16)
    if how == 0 and choose.below(4) == 0:
        return _value(choose)
    if not isinstance(given, dict):
        return given
    if how == 1:
        return _copied(choose.pick(cases).saved)
    if how == 2:
        other = choose.pick(cases).saved
        key = choose.pick(("state", "param_groups"))
        return {**given, key: _copied(other[key])}
    state, groups = given.get("state"), given.get("param_groups")
    if how < 10 and isinstance(state, dict) and state:
        key = choose.pick(list(state))
        entry = state[key]
        _change_one(entry if isinstance(entry, dict) and how > 4 else state, choose, tensors=True)
    elif isinstance(groups, list) and groups:
        group = choose.pick(groups)
        _change_one(group if isinstance(group, dict) and how > 10 else given, choose)
        if how == 10:
            groups.append(choose.pick((group, {}, None)))
    return given


def _change_one(place: dict[Any, Any], choose: Choices, *, tensors: bool = False) -> None:
    how = choose.below(8)
    keys = list(place) or ["x"]
    key = choose.pick(keys)
    if how == 0:
        place.pop(key, None)
    elif how == 1:
        place[choose.pick((0, 1, 2, -1, "0", "x", None, *keys))] = place.get(key)
    else:
        place[key] = choose.pick(TENSORS) if tensors and how > 3 else _value(choose)


def _value(choose: Choices) -> Any:
    return copy.copy(choose.pick(PLAIN)) if choose.below(4) else choose.pick(TENSORS)
