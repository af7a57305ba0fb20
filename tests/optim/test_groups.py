"""Groups without decay, by name."""

import pytest
import torch
from torch import nn

from adahb.optim import AdaHB, no_decay_groups


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.conv = nn.Conv1d(4, 4, 1)
        self.norm = nn.GroupNorm(2, 4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight


def names(group):
    return [name for name, _ in group["params"]]


def test_biases_norms_and_vectors_are_spared():
    decayed, rest = no_decay_groups(Model(), 0.1)
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert names(decayed) == [
        "embedding.weight",
        "conv.weight",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
    ]
    assert set(names(rest)) == {
        "scale",
        "conv.bias",
        "norm.weight",
        "norm.bias",
        "attention.in_proj_bias",
        "attention.out_proj.bias",
    }


def test_norms_whose_weights_have_more_axes():
    decayed, rest = no_decay_groups(nn.ModuleList([nn.LayerNorm((2, 3)), nn.Linear(2, 2)]), 0.1)
    assert names(decayed) == ["1.weight"]
    assert "0.weight" in names(rest)


def test_biases_with_more_axes():
    model = nn.Linear(2, 2)
    model.bias = nn.Parameter(torch.zeros(1, 2))
    assert names(no_decay_groups(model, 0.1)[1]) == ["bias"]


@pytest.mark.parametrize("pattern", ["embedding.*", "head.weight"])
def test_patterns_reach_a_shared_parameter_by_any_of_its_names(pattern):
    _, rest = no_decay_groups(Model(), 0.1, no_decay=[pattern])
    assert "embedding.weight" in names(rest)
    assert "head.weight" not in names(rest)


def test_what_the_model_names_itself_is_spared():
    """Models of timm name tokens too that not every one of them has."""

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.pos_embed = nn.Parameter(torch.zeros(1, 4, 2))
            self.head = nn.Linear(2, 2)

        def no_weight_decay(self):
            return {"pos_embed", "reg_token"}

    decayed, rest = no_decay_groups(Named(), 0.1)
    assert names(decayed) == ["head.weight"]
    assert names(rest) == ["pos_embed", "head.bias"]


def test_every_parameter_once_and_the_optimizer_takes_them():
    model = Model()
    optimizer = AdaHB(no_decay_groups(model, 0.1))
    taken = [p for group in optimizer.param_groups for p in group["params"]]
    assert {id(p) for p in taken} == {id(p) for p in model.parameters()}
    assert len(taken) == len(list(model.parameters()))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


def test_a_group_without_members_is_left_out():
    assert len(no_decay_groups(nn.Linear(2, 2, bias=False), 0.1)) == 1
    assert len(no_decay_groups(nn.LayerNorm(2), 0.1)) == 1


def test_refusals():
    with pytest.raises(ValueError, match=r"no_decay must match names .* got 'emebdding"):
        no_decay_groups(Model(), 0.1, no_decay=["emebdding.*"])
    with pytest.raises(TypeError, match="collection of patterns, got the string 'head'"):
        no_decay_groups(Model(), 0.1, no_decay="head")
    with pytest.raises(ValueError, match=r"weight_decay must be .* got -1"):
        no_decay_groups(Model(), -1.0)
