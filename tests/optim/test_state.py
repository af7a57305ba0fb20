"""What is kept between steps: saved, loaded, copied, and continued to the bit."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch

from adahb.optim import HB, NAG, PSG, AdaHB
from adahb.sets import Box, L1Ball, L2Ball

RUNS = {
    "AdaHB": lambda p: AdaHB(p, tick=2),
    "AdaHB z": lambda p: AdaHB(p, tick=2, constraint=L1Ball(0.5), form="averaging"),
    "AdaHB u": lambda p: AdaHB(p, tick=2, constraint=L1Ball(0.5), form="paper"),
    "AdaHB average": lambda p: AdaHB(p, tick=2, momentum=0.9, foreach=True),
    "AdaHB on device": lambda p: AdaHB(p, lr=torch.tensor(0.01), tick=2, capturable=True),
    "HB": lambda p: HB(p, tick=2, constraint=L2Ball(0.5)),
    "NAG": lambda p: NAG(p, tick=2, constraint=Box([-0.1] * 3, 0.1)),
    "PSG": lambda p: PSG(p, tick=2),
}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def parameters(dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.nn.Parameter((torch.randn(s) * 0.01).to(dtype)) for s in ((4, 3), (3,))]


def give(params, k):
    generator = torch.Generator().manual_seed(k)
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)


def take(optimizer, params, steps):
    for k in steps:
        give(params, k)
        optimizer.step()


def through_file(data):
    buffer = io.BytesIO()
    torch.save(data, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def assert_same_states(one, other):
    for state, twin in zip(one.state.values(), other.state.values(), strict=True):
        assert state.keys() == twin.keys()
        for key in state:
            assert state[key].dtype == twin[key].dtype
            assert torch.equal(state[key], twin[key]), key


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_stopped_and_resumed_is_the_run_that_was_not(name, dtype):
    params = parameters(dtype)
    whole = RUNS[name](params)
    take(whole, params, range(9))

    params_again = parameters(dtype)
    first = RUNS[name](params_again)
    take(first, params_again, range(5))
    saved = through_file({"optimizer": first.state_dict(), "weights": params_again})
    resumed = [torch.nn.Parameter(p.detach().clone()) for p in saved["weights"]]
    second = RUNS[name](resumed)
    second.load_state_dict(saved["optimizer"])
    assert_same_states(first, second)
    take(second, resumed, range(5, 9))
    assert all(map(torch.equal, params, resumed))
    assert_same_states(whole, second)


def test_states_of_half_precision_are_float32_and_stay_it():
    params = parameters(torch.bfloat16)
    optimizer = AdaHB(params, momentum=0.9)
    take(optimizer, params, range(3))
    loaded = AdaHB(params, momentum=0.9)
    loaded.load_state_dict(through_file(optimizer.state_dict()))
    for state in loaded.state.values():
        kinds = {key: value.dtype for key, value in state.items()}
        assert kinds.pop("clock") == torch.int64
        assert kinds.pop("low") == torch.int16
        assert set(kinds.values()) == {torch.float32}


def test_the_state_dict_is_plain_data_and_holds_the_constraint():
    params = parameters()
    optimizer = AdaHB(params, constraint=L1Ball(0.5))
    take(optimizer, params, range(2))
    saved = through_file(optimizer.state_dict())
    assert saved["param_groups"][0]["constraint"]["kind"] == "L1Ball"
    other = AdaHB(params)
    other.load_state_dict(saved)
    assert other.param_groups[0]["constraint"] == L1Ball(0.5)
    assert saved["param_groups"][0]["constraint"]["radius"] == 0.5  # as it was given


def test_loading_copies():
    params = parameters()
    optimizer = AdaHB(params)
    take(optimizer, params, range(2))
    saved = optimizer.state_dict()
    other = AdaHB(parameters())
    other.load_state_dict(saved)
    before = {k: v.clone() for k, v in saved["state"][0].items()}
    take(other, other.param_groups[0]["params"], range(3))
    assert all(torch.equal(before[k], v) for k, v in saved["state"][0].items())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("name", RUNS)
def test_copies_go_on_alike(name, copied):
    params = parameters()
    optimizer = RUNS[name](params)
    take(optimizer, params, range(3))
    twin, twins = copied((optimizer, params))
    take(optimizer, params, range(3, 6))
    take(twin, twins, range(3, 6))
    assert all(map(torch.equal, params, twins))
    assert_same_states(optimizer, twin)


def test_loading_in_another_process(tmp_path):
    params = parameters()
    optimizer = AdaHB(params, tick=2, constraint=L1Ball(0.5))
    take(optimizer, params, range(3))
    torch.save([optimizer.state_dict(), params], tmp_path / "saved.pt")
    code = f"""
import torch
from adahb import AdaHB
state, params = torch.load({str(tmp_path / "saved.pt")!r}, weights_only=True)
optimizer = AdaHB(params, tick=5)
optimizer.load_state_dict(state)
for p in params:
    p.grad = torch.ones_like(p)
optimizer.step()
torch.save(params, {str(tmp_path / "after.pt")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    after = torch.load(tmp_path / "after.pt", weights_only=True)
    assert all(map(torch.equal, params, after))


def test_clocks_that_agree_are_one_again_after_loading():
    params = parameters()
    optimizer = AdaHB(params)
    take(optimizer, params, range(2))
    for state in optimizer.state.values():
        state["clock"] = state["clock"].clone()
    optimizer.load_state_dict(optimizer.state_dict())
    assert len({id(state["clock"]) for state in optimizer.state.values()}) == 1


def test_groups_keep_clocks_of_their_own_after_loading():
    """A clock that two groups shared would go on twice in every step."""
    params, twins = parameters(), parameters()
    optimizer, other = ([{"params": [p]} for p in group] for group in (params, twins))
    optimizer, other = AdaHB(optimizer, tick=2), AdaHB(other, tick=2)
    take(optimizer, params, range(3))
    take(other, twins, range(3))
    other.load_state_dict(through_file(other.state_dict()))
    take(optimizer, params, range(3, 6))
    take(other, twins, range(3, 6))
    assert {int(state["clock"]) for state in other.state.values()} == {6}
    assert all(map(torch.equal, params, twins))


def test_hooks_around_states():
    params = parameters()
    optimizer = AdaHB(params)
    take(optimizer, params, range(2))
    seen = []
    optimizer.register_state_dict_pre_hook(lambda _: seen.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda _, d: {**d, "note": 1})
    saved = optimizer.state_dict()
    assert (seen, saved.pop("note")) == (["before saving"], 1)

    bfloats = [torch.nn.Parameter(p.detach().bfloat16()) for p in params]
    other = AdaHB(bfloats)

    def doubled(_, given):  # a pre-hook may hand on another state: that one is taken up
        state = {k: {**s, "v": 2 * s["v"]} for k, s in given["state"].items()}
        return {**given, "state": state}

    def look(loaded):
        state = loaded.state[bfloats[0]]
        assert torch.equal(state["v"], 2 * optimizer.state[params[0]]["v"])
        seen.append("after loading")

    other.register_load_state_dict_pre_hook(doubled)
    other.register_load_state_dict_post_hook(look)
    other.load_state_dict(saved)
    assert seen[-1] == "after loading"


def stepped(kind, *shapes, **options):
    params = [torch.nn.Parameter(torch.zeros(s)) for s in shapes or [(3,)]]
    optimizer = kind(params, **options)
    take(optimizer, params, range(1))
    return optimizer


FOREIGN = [
    (AdaHB, lambda: stepped(torch.optim.Adam), "one of AdaHB, but its groups have no 'gamma'"),
    (AdaHB, lambda: stepped(HB), "one of AdaHB, but its groups have no 'gamma'"),
    (HB, lambda: stepped(AdaHB), "one of HB, but its groups have 'gamma'=0.1"),
    (PSG, lambda: stepped(NAG), "one of PSG .*, which holds clock, u, average .* got clock, u$"),
    (NAG, lambda: stepped(PSG), "one of NAG .*, which holds clock, u for .* got clock, u, average"),
    (AdaHB, lambda: stepped(AdaHB, (4,)), r"of shape \(3,\) must .* under 'u', got \(4,\)"),
    (AdaHB, lambda: stepped(AdaHB, (3,), (3,)), "match the size of those"),
]


@pytest.mark.parametrize(("kind", "other", "message"), FOREIGN)
def test_states_of_others_are_refused_and_nothing_is_changed(kind, other, message):
    optimizer = stepped(kind)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(other().state_dict())
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(torch.equal(v, after["state"][0][k]) for k, v in before["state"][0].items())


@pytest.mark.parametrize("lr", [0.0, torch.tensor(0.0)], ids=["float", "tensor"])
@pytest.mark.parametrize("name", ["AdaHB", "AdaHB z", "AdaHB average", "NAG", "PSG"])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_step_without_learning_rate_only_creates_the_state(name, lr, on_device, steps):
    params = parameters()
    optimizer = RUNS[name](params)
    group = optimizer.param_groups[0]
    group.update(capturable=on_device, foreach=False if on_device else group["foreach"])
    take(optimizer, params, range(steps))
    weights = copy.deepcopy(params)
    states = copy.deepcopy(list(optimizer.state.values()))
    given, group["lr"] = group["lr"], lr
    take(optimizer, params, [99])
    assert all(map(torch.equal, params, weights))
    assert all(int(s["clock"]) == steps for s in optimizer.state.values())
    for old, new in zip(states, optimizer.state.values(), strict=bool(steps)):
        assert all(torch.equal(old[k], new[k]) for k in old)
    group["lr"] = given
    twins = parameters()
    twin = RUNS[name](twins)
    twin.param_groups[0]["foreach"] = group["foreach"]
    take(twin, twins, range(steps + 1))
    take(optimizer, params, range(steps, steps + 1))
    assert all(map(torch.equal, params, twins))


def without(key):
    return lambda saved: saved["state"][0].pop(key)


def entry(key, value):
    return lambda saved: saved["state"][0].update({key: value})


def option(**values):
    return lambda saved: saved["param_groups"][0].update(values)


HOSTILE = [
    (lambda s: s.pop("state"), "a dict of 'state', a dict, and 'param_groups', a list of dicts"),
    (lambda s: s.update(param_groups=3), "'param_groups', a list of dicts"),
    (lambda s: s["param_groups"].append([]), "'param_groups', a list of dicts"),
    (lambda s: s["param_groups"].append({"params": []}), r"match the size .* \[1\], got \[1, 0\]"),
    (option(params=None), "groups with a list 'params', got None"),
    (option(params=[[]]), r"a number for each parameter, got \[\[\]\]"),
    (lambda s: s["state"].update({7: {}}), r"a state for parameters of its groups, got \[7\]"),
    (lambda s: s["state"].update({0: None}), "a dict for each parameter, got None for 0"),
    (without("v"), "which holds clock, u, v for a parameter, got clock, u"),
    (entry("x", 1), "which holds clock, u, v for a parameter, got clock, u, v, x"),
    (entry("u", [0.0] * 3), "a plain tensor under 'u', got a list"),
    (entry("u", torch.zeros(3).to_sparse()), "a plain tensor under 'u', got a tensor of"),
    (entry("u", torch.zeros(3, device="meta")), "a plain tensor under 'u', got a tensor of"),
    (entry("u", torch.zeros(3).long()), "float32 or torch.float64 under 'u', got torch.int64"),
    (entry("v", -torch.ones(3)), "no negative numbers under 'v', got -1.0"),
    (entry("low", []), "a plain tensor under 'low', got a list"),
    (entry("clock", 3), "a tensor that counts the steps, .* got a int"),
    (
        entry("clock", torch.tensor(float("nan"))),
        "counts the steps, .* got a tensor of torch",
    ),
    (entry("clock", torch.tensor(-1)), "an integer from 0 to 2.53, got -1"),
    (entry("clock", torch.tensor(2**62)), "an integer from 0 to 2.53, got 4611"),
    (option(lr="fast"), r"lr must be a number in \[0, 3.40282e\+38\], got 'fast'"),
    (option(tick=0), "tick must be an integer of at least 1 and at most 9007199254740992, got 0"),
    (option(tick=10**400), "tick must be an integer of .* at most 9007199254740992, got 1000"),
    (option(lr=10**5000), r"lr must be a number in \[0, 3.40282e\+38\], got one of 16610 bits"),
    (option(gamma=float("nan")), "gamma must be a number"),
    (option(form=[]), r"form must be one of 'averaging', 'paper', got \[\]"),
    (option(constraint={"kind": []}), r"kind must be one of .*, got \[\]"),
    (option(constraint={"kind": "L1Ball", "radius": -1}), "radius must be a number"),
    (option(constraint="all"), "constraint must be a set of adahb.sets or None, got 'all'"),
    (option(constraint={"kind": "L1Ball", "radius": 1, "dim": 5}), "must fit every parameter"),
]


@pytest.mark.parametrize(("harm", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_state_is_refused_in_words_and_nothing_is_changed(harm, message):
    optimizer = stepped(AdaHB)
    saved = copy.deepcopy(optimizer.state_dict())
    before = [dict(optimizer.state[p]) for p in optimizer.state]
    options = dict(optimizer.param_groups[0])
    harm(saved)
    with pytest.raises((TypeError, ValueError), match=message):
        optimizer.load_state_dict(saved)
    after = [dict(optimizer.state[p]) for p in optimizer.state]
    assert all(old[k] is new[k] for old, new in zip(before, after, strict=True) for k in old)
    assert optimizer.param_groups[0] == options


def test_a_state_that_is_no_dict():
    with pytest.raises(TypeError, match="state_dict must be a dict, got Tensor"):
        stepped(AdaHB).load_state_dict(torch.zeros(3))
