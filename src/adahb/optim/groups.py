"""Parameter groups by name."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from adahb import _checks as check

_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
    nn.LayerNorm,
    nn.LocalResponseNorm,
    nn.RMSNorm,
)


def no_decay_groups(
    model: nn.Module, weight_decay: float, *, no_decay: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Two groups of named parameters: those that ``weight_decay`` shrinks, and the rest.

    Decay is for weights that multiply inputs.  Spared are biases, the parameters of normalisations
    (shrinking a scale that the next layer undoes only changes the step size), whatever has fewer
    than two axes, the names that match a pattern of ``no_decay``, and those that the model itself
    names by a method ``no_weight_decay``, as models of timm do.  Frozen parameters are taken
    too, so that they can be thawed later; a parameter of two modules is taken once, under its
    first name, and spared if any of its names is.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    >>> for group in no_decay_groups(model, 0.1):
    ...     print(group["weight_decay"], [name for name, _ in group["params"]])
    0.1 ['0.weight']
    0.0 ['0.bias', '1.weight', '1.bias']

    Args:
        model: Whose parameters.
        weight_decay: Of the first group; the second one's is 0.
        no_decay: Patterns as of the shell, on full names: ``"*.embedding.*"``, ``"head.weight"``.
    """
    weight_decay = check.number("weight_decay", weight_decay, at_least=0)
    if isinstance(no_decay, str):
        raise TypeError(f"no_decay must be a collection of patterns, got the string {no_decay!r}")
    patterns = list(no_decay)
    own = list(getattr(model, "no_weight_decay", list)())  # may name what this model does not have
    matched: set[str] = set()
    spared: set[int] = set()
    for path, module in model.named_modules(remove_duplicate=False):
        for name, p in module.named_parameters(path, recurse=False, remove_duplicate=False):
            hits = {pattern for pattern in (*patterns, *own) if fnmatchcase(name, pattern)}
            matched |= hits
            is_bias = name.rpartition(".")[2].startswith("bias") or name.endswith("_bias")
            if hits or is_bias or p.ndim < 2 or isinstance(module, _NORMS):
                spared.add(id(p))
    for pattern in patterns:
        if pattern not in matched:
            raise ValueError(f"no_decay must match names of parameters, got {pattern!r}")
    named = list(model.named_parameters())
    decayed = [(name, p) for name, p in named if id(p) not in spared]
    rest = [(name, p) for name, p in named if id(p) in spared]
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
