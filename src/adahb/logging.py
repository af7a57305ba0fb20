"""What the optimizers choose by themselves, written down while they run.

    recording = record(optimizer, every=100, to=CSVWriter("run.csv"))

Every hundredth step adds a row for each parameter group: where its clock is, the coefficients of
the step just made, how large that step was, and how far w is from z.  Between those steps nothing
is read from the device.  ``to`` is called with each row, a dictionary: `CSVWriter` and
`TensorBoardWriter` are there, and ``list.append`` or the ``log`` of any service does as well.
"""

from __future__ import annotations

import csv
import errno
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adahb import _checks as check
from adahb import schedules
from adahb._files import explained
from adahb.optim import narrow, nonfinite
from adahb.optim import state as kept
from adahb.optim.base import HeavyBall
from adahb.optim.options import Group

if TYPE_CHECKING:
    from types import TracebackType

    from torch.utils.tensorboard import SummaryWriter

    from adahb.certificates import Certificate

Row = dict[str, Any]

COLUMNS = (
    "group",
    "step",
    "t",
    "lr",
    "alpha",
    "beta1",
    "beta2",
    "effective_step",
    "distance",
    "skipped_steps",
    "value",
    "lower_bound",
    "gap",
)
"""What a row can hold, in order; what a method does not have is left out of its rows.

``group`` is the group's ``name`` or its number, ``step`` the steps made and ``t`` the clock, which
goes on every ``tick`` of them.  ``alpha`` has the learning rate in it.  ``effective_step`` is what
the preconditioner makes of it, α over the mean of V̂: the harmonic mean of the coordinates' steps.
``distance`` is ‖w - z‖.  ``skipped_steps`` is there with nonfinite="skip": the steps left out.  The
last three are those of a certificate."""


def record(
    optimizer: Any,
    *,
    to: Callable[[Row], object],
    every: int = 100,
    certificate: Callable[[], Certificate] | None = None,
) -> Recording:
    """Hand the rows of `quantities` to ``to`` after every ``every``-th step, until removed.

    Steps are counted on the host, from what the state says when the recording begins or a state is
    loaded, so that a resumed run writes the rows that it would have written anyway.

    >>> import torch
    >>> from adahb import AdaHB
    >>> w = torch.nn.Parameter(torch.ones(3))
    >>> optimizer, rows = AdaHB([w], lr=0.1, tick=1), []
    >>> with record(optimizer, every=2, to=rows.append):
    ...     for _ in range(5):
    ...         optimizer.zero_grad()
    ...         w.square().sum().backward()
    ...         optimizer.step()
    >>> [(row["step"], row["beta1"]) for row in rows]
    [(2, 0.5), (4, 0.6666666666666666)]

    Args:
        optimizer: One of `adahb.optim`, or what Accelerate or Lightning have made of it.
        to: Called with each row.
        every: Steps from one reading to the next.
        certificate: Called at those steps for what can be proved of the weights then.
    """
    return Recording(
        unwrapped(optimizer), check.integer("every", every, at_least=1), to, certificate
    )


class Recording:
    """A record in progress; ``remove()`` ends it, as does leaving it as a context."""

    def __init__(
        self,
        optimizer: HeavyBall,
        every: int,
        to: Callable[[Row], object],
        certificate: Callable[[], Certificate] | None,
    ) -> None:
        self._every, self._to, self._certificate = every, to, certificate
        self._handles = (
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_load_state_dict_post_hook(self._align),
        )
        self._align(optimizer)

    def remove(self) -> None:
        """Record no more."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def _align(self, optimizer: Any) -> None:
        self._wait(max((reading.step for reading in _readings(optimizer)), default=0))

    def _wait(self, step: int) -> None:
        """Let the next reading be at a multiple of ``every``."""
        self._left = self._every - step % self._every

    def _after_step(self, optimizer: Any, *_: object) -> None:
        self._left -= 1
        if self._left:
            return
        self._left = self._every  # whatever happens below
        rows = quantities(optimizer)
        self._wait(max((row["step"] for row in rows), default=0))
        proved: Row = {}
        if self._certificate is not None:
            found = self._certificate()
            proved = {"value": found.value, "lower_bound": found.lower_bound, "gap": found.gap}
        for row in rows:
            self._to(row | proved)


def quantities(optimizer: Any) -> list[Row]:
    """A row for each group that has made a step: what `COLUMNS` names, as it is now.

    This waits for the device, once.  Where parameters of a group have made different numbers of
    steps the row is about those that have made the most.
    """
    return [_row(reading) for reading in _readings(unwrapped(optimizer))]


def unwrapped(optimizer: Any) -> HeavyBall:
    """The optimizer inside of what frameworks wrap around it."""
    inner = optimizer
    while not isinstance(inner, HeavyBall) and hasattr(inner, "optimizer"):
        inner = inner.optimizer
    if not isinstance(inner, HeavyBall):
        raise TypeError(f"optimizer must be one of adahb.optim, got {type(optimizer).__name__}")
    return inner


# ---------------------------------------------------------------- reading the state


@dataclass(frozen=True)
class _Reading:
    """What a row is made of: sums over the parameters that share a clock."""

    label: str | int
    schedule: schedules.Schedule
    lr: float
    step: int
    roots: float
    """Σ √v."""
    entries: int
    squares: float
    """‖z - w‖², or ‖w - w₋‖² where that is what is kept."""
    keeps_z: bool
    skipped: int | None
    """Steps left out; None where the group does not skip."""


def _readings(optimizer: HeavyBall) -> list[_Reading]:
    """Of each group the clock that has gone furthest; one wait for each device."""
    sharing = [
        (label, group, members)
        for label, group in enumerate(optimizer.param_groups)
        for members in _by_clock(optimizer, group)
    ]
    numbers = iter(_on_host([x for _, group, m in sharing for x in _sums(group, m, optimizer)]))
    furthest: dict[int, _Reading] = {}
    for place, group, members in sharing:
        step, lr, roots, squares, skipped = (next(numbers) for _ in range(5))
        if step and (place not in furthest or furthest[place].step < step):
            furthest[place] = _Reading(
                label=group.get("name", place),
                schedule=optimizer._schedule(group),
                lr=lr,
                step=int(step),
                roots=roots,
                entries=sum(p.numel() for p in members),
                squares=squares,
                keeps_z=kept.U not in optimizer.state[members[0]],
                skipped=int(skipped) if nonfinite.COUNT in group else None,
            )
    return list(furthest.values())


def _by_clock(optimizer: HeavyBall, group: Group) -> Iterator[list[Tensor]]:
    sharing: dict[int, list[Tensor]] = {}
    for p in group["params"]:
        state = optimizer.state.get(p)
        if state:
            sharing.setdefault(id(state[kept.CLOCK]), []).append(p)
    yield from sharing.values()


@torch.no_grad()
def _sums(group: Group, params: list[Tensor], optimizer: HeavyBall) -> list[Tensor]:
    """Clock, lr, Σ √v, the square of the buffer, steps skipped: 0-d tensors on their devices."""
    clock = optimizer.state[params[0]][kept.CLOCK]
    roots, squares = [], []
    for p in params:
        state = optimizer.state[p]
        wide = optimizer._recipe(group).arithmetic(p.dtype)
        if kept.V in state:
            v = narrow.read(state[kept.V], state.get(kept.V + kept.SCALE), wide.to_real())
            roots.append(v.sqrt().sum())
        squares.append(_buffer(p, state, wide).abs().square().sum())
    return [
        clock,
        torch.as_tensor(group["lr"], dtype=torch.float64),
        _total(roots),
        _total(squares),
        torch.as_tensor(group.get(nonfinite.COUNT, 0)),
    ]


def _buffer(p: Tensor, state: Group, wide: torch.dtype) -> Tensor:
    """Z - w, or w - w₋ where the state holds that."""
    if kept.Z in state:
        w = narrow.joined(p, state[kept.LOW], wide) if kept.LOW in state else p
        return state[kept.Z] - w  # type: ignore[no-any-return]
    key = kept.P if kept.P in state else kept.U
    return narrow.read(state[key], state.get(key + kept.SCALE), wide)


def _total(parts: list[Tensor]) -> Tensor:
    """The sum of numbers that may be on several devices, or parts of which are in processes."""
    whole = [part.full_tensor() if hasattr(part, "full_tensor") else part for part in parts]
    return sum((part.double().to(whole[0].device) for part in whole), start=torch.zeros(()))


def _on_host(scalars: list[Tensor]) -> list[float]:
    """Numbers of 0-d tensors, with one wait for each device."""
    numbers = [0.0] * len(scalars)
    for device in {x.device for x in scalars}:
        places = [i for i, x in enumerate(scalars) if x.device == device]
        found = torch.stack([scalars[i].detach().double().reshape(()) for i in places]).tolist()
        for i, number in zip(places, found, strict=True):
            numbers[i] = number
    return numbers


def _row(reading: _Reading) -> Row:
    at = reading.schedule(reading.step)
    alpha = reading.lr * at.alpha
    row = {
        "group": reading.label,
        "step": reading.step,
        "t": int(reading.schedule.time(reading.step)),
        "lr": reading.lr,
        "alpha": alpha,
        "beta1": at.beta1,
        "effective_step": alpha,
    }
    if at.beta2 is not None:
        row["beta2"] = at.beta2
        row["effective_step"] = alpha / (reading.roots / max(reading.entries, 1) + at.delta)
    if isinstance(reading.schedule, schedules.HB | schedules.HBConstant):
        behind = 1.0 if reading.keeps_z else (1 - at.c) / at.c  # z - w in units of w - w₋
        row["distance"] = behind * reading.squares**0.5
    if reading.skipped is not None:
        row["skipped_steps"] = reading.skipped
    return row


# ---------------------------------------------------------------- writers


class CSVWriter:
    """Rows as lines of a CSV file, which a resumed run continues.

    The file is opened for every row and gets the whole line at once, so that what stands there can
    be read at any time.  A last line that was cut off, as by a full disk, is removed when a writer
    is made for the file; nothing else that stands in it is ever changed.  A run taken up from an
    earlier state writes the steps in between again: of two lines for a step the later one holds.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            return
        text, header = self.path.read_bytes(), _line(COLUMNS)
        if not (text.startswith(header) or header.startswith(text)):
            raise ValueError(f"path must be new or a file of a CSVWriter, got {self.path}")
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            with self.path.open("r+b") as file:
                file.truncate(whole)

    def __call__(self, row: Row) -> None:
        """Append a row."""
        with explained(self.path), self.path.open("ab", buffering=0) as file:
            begin = file.tell()
            header = b"" if begin else _line(COLUMNS)
            line = header + _line([row.get(name, "") for name in COLUMNS])
            if file.write(line) < len(line):
                file.truncate(begin)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _line(cells: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


class TensorBoardWriter:
    """Rows as scalars of TensorBoard, under ``prefix/quantity/group``.

    Args:
        to: A folder, or a `SummaryWriter` that is used for other things as well.
        prefix: What the tags begin with.
    """

    def __init__(
        self, to: str | os.PathLike[str] | SummaryWriter, *, prefix: str = "adahb"
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = to if isinstance(to, SummaryWriter) else SummaryWriter(str(Path(to)))
        self.prefix = prefix

    def __call__(self, row: Row) -> None:
        """Add the scalars of a row."""
        for name, value in row.items():
            if name not in ("group", "step"):
                tag = f"{self.prefix}/{name}/{row['group']}"
                self.writer.add_scalar(tag, value, row["step"])

    def close(self) -> None:
        """Write what is still held back."""
        self.writer.close()
