"""Networks, optimizers and the training loop of figures 1 to 4, on the CPU."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from adahb.data import Split
from adahb.experiments import rivals
from adahb.experiments.networks import NETWORKS, Dropout, draw_dropout, network, penalty
from adahb.experiments.training import Recipe, Run, prepare, train, train_together

pytestmark = pytest.mark.usefixtures("one_thread")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # torch's compiler has much to say
]
ALPHAS = {"AdaHB": 0.01, "SGD": 0.1, "SGD-momentum": 0.03}


def stripes(n, seed):
    """Images of horizontal or vertical stripes, or of neither."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = rng.integers(0, 60, (n, 1, 8, 8))
    x[y == 0, :, ::2] += 150
    x[y == 1, :, :, ::2] += 150
    return Split(x.astype(np.uint8), y)


def prepared(held_out=0, centred=False):
    return prepare(
        stripes(96, 0), stripes(40, 1), 3, held_out=held_out, centred=centred, device="cpu"
    )


def recipe(optimizer="AdaHB", **changes):
    alpha = ALPHAS.get(optimizer, 0.003)
    known = {"network": "cnn", "seed": 0, "epochs": 3, "batch": 16, "alpha": alpha}
    return Recipe(optimizer=optimizer, **(known | changes))


# ---------------------------------------------------------------- networks


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("cnn", (3, 32, 32), 1_060_586),
        ("cnn-paper", (3, 32, 32), 1_060_266),
        ("resnet18", (3, 32, 32), 11_173_962),
        ("resnet20", (3, 32, 32), 273_066),
        ("cnn", (1, 28, 28), 814_250),
    ],
)
def test_sizes(name, shape, parameters):
    made = network(name, shape, 10, seed=0).eval()
    assert sum(p.numel() for p in made.parameters()) == parameters
    assert made(torch.zeros(2, *shape)).shape == (2, 10)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_depend_on_the_seed_alone(name):
    torch.manual_seed(1)
    one = network(name, (1, 8, 8), 3, seed=5)
    torch.manual_seed(2)
    same, other = network(name, (1, 8, 8), 3, seed=5), network(name, (1, 8, 8), 3, seed=6)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(p, q) for p, q, _ in pairs)
    assert any(not torch.equal(p, r) for p, _, r in pairs)


def modules(name, kind):
    return [m for m in network(name, (3, 32, 32), 10, seed=0).modules() if isinstance(m, kind)]


@pytest.mark.parametrize("name", ["cnn", "cnn-paper"])
def test_glorots_uniform_start(name):
    for module in modules(name, nn.Conv2d | nn.Linear):
        inside, outside = nn.init._calculate_fan_in_and_fan_out(module.weight)
        limit = math.sqrt(6 / (inside + outside))
        w = module.weight.detach()
        assert 0.97 * limit < float(w.abs().max()) <= limit
        assert float(w.std()) == pytest.approx(limit / math.sqrt(3), rel=0.06)
        assert not module.bias.any()


@pytest.mark.parametrize(("name", "longest"), [("resnet18", math.inf), ("resnet20", 2 / 0.8796)])
def test_hes_normal_start(name, longest):
    """Keras cuts its normal off at two standard deviations, and widens what is left."""
    scaled = []
    for module in modules(name, nn.Conv2d | nn.Linear):
        expected = math.sqrt(2 / module.weight[0].numel())
        scaled.append(module.weight.detach().flatten() / expected)
        assert float(scaled[-1].std()) == pytest.approx(1.0, rel=0.12)
        assert module.bias is None or not module.bias.any()
    whole = torch.cat(scaled)
    assert float(whole.std()) == pytest.approx(1.0, rel=0.005)
    assert float(whole.abs().max()) < longest
    assert float(whole.abs().max()) > 2.2


@pytest.mark.parametrize(
    ("name", "layers", "momentum", "eps"),
    [
        ("cnn", 4, 0.01, 1e-3),
        ("cnn-paper", 2, 0.01, 1e-3),
        ("resnet18", 20, 0.1, 1e-5),
        ("resnet20", 19, 0.01, 1e-3),
    ],
)
def test_batch_normalisation(name, layers, momentum, eps):
    """What comes of Keras keeps 0.99 of its statistics; torch counts the other way round."""
    norms = modules(name, nn.BatchNorm1d | nn.BatchNorm2d)
    assert len(norms) == layers
    assert {(norm.momentum, norm.eps) for norm in norms} == {(momentum, eps)}


def kinds(name):
    return [type(m).__name__ for m in network(name, (3, 32, 32), 10, seed=0)]


def test_the_order_of_the_layers():
    published = kinds("cnn")
    twice = ["Conv2d", "ReLU", "BatchNorm2d"] * 2
    assert published[:9] == [*twice, "MaxPool2d", "BatchNorm2d", "Dropout"]
    assert published[9:] == ["Flatten", "Linear", "ReLU", "BatchNorm1d", "Dropout", "Linear"]
    dense = {"BatchNorm1d", "BatchNorm2d"}
    assert kinds("cnn-paper")[6:] == [k for k in published[6:] if k not in dense]
    assert [m.rate for m in modules("cnn", Dropout)] == [0.25, 0.5]
    convolutions = modules("cnn", nn.Conv2d)
    assert {(c.out_channels, c.kernel_size, c.padding) for c in convolutions} == {
        (32, (3, 3), "same")
    }


@pytest.mark.parametrize(
    ("name", "widths"),
    [("resnet18", {64: 5, 128: 5, 256: 5, 512: 5}), ("resnet20", {16: 7, 32: 7, 64: 7})],
)
def test_residual_networks_for_small_images(name, widths):
    convolutions = modules(name, nn.Conv2d)
    stem = convolutions[0]
    assert (stem.kernel_size, stem.stride) == ((3, 3), (1, 1))
    assert not modules(name, nn.MaxPool2d)
    assert {k: sum(c.out_channels == k for c in convolutions) for k in widths} == widths
    assert sum(c.stride == (2, 2) for c in convolutions) == 2 * (len(widths) - 1)


def test_only_the_residual_network_of_the_published_code_is_penalised():
    assert {name: penalty(name) for name in NETWORKS if penalty(name)} == {"resnet20": 1e-4}


def test_dropout_keeps_the_mean_and_draws_from_its_generator():
    x = torch.ones(200, 100)
    layer, other = Dropout(0.25, (100,)), Dropout(0.25, (100,))
    noise = torch.Generator().manual_seed(0)
    layer.draw(200, noise)
    y = layer(x)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert float(y.mean()) == pytest.approx(1.0, abs=0.02)
    assert torch.equal(y, layer(x))  # until the next is drawn
    other.draw(200, torch.Generator().manual_seed(0))
    assert torch.equal(y, other(x))
    draw_dropout(nn.Sequential(layer), 200, noise)
    assert not torch.equal(y, layer(x))
    assert layer.eval()(x) is x


def test_an_unknown_network():
    with pytest.raises(ValueError, match=r"name must be one of 'cnn', .*, got 'vgg'"):
        network("vgg", (1, 8, 8), 3, seed=0)


# ---------------------------------------------------------------- optimizers


@pytest.mark.parametrize("name", [*rivals.PAPER, *rivals.MODERN])
def test_every_optimizer_learns_the_stripes(name):
    curves = train(Run(recipe(name, epochs=8), prepared()))
    assert len(curves["train_loss"]) == 8
    assert curves["train_loss"][-1] < 0.6 * curves["train_loss"][0]


def test_the_clock_of_adahb_is_the_epoch():
    run = Run(recipe(), prepared())
    assert run.steps_an_epoch == 6
    assert run.optimizer.optimizer.defaults["tick"] == 6
    other = Run(recipe(options=(("tick", 1), ("power", 2.0))), prepared())
    assert other.optimizer.optimizer.defaults["tick"] == 1
    assert other.optimizer.optimizer.defaults["power"] == 2.0


def test_a_cosine_falls_to_zero_over_its_horizon():
    p = nn.Parameter(torch.ones(2))
    rival = rivals.made("Adam cosine", rivals.Wanted([p], 0.1, {}, 5, 4, capturable=False))
    seen = []
    for step in range(20):
        rival.before(step)
        seen.append(rival.optimizer.param_groups[0]["lr"])
    assert seen[0] == 0.1
    assert seen[10] == pytest.approx(0.05)
    assert 0 < seen[-1] < 0.001
    assert seen == sorted(seen, reverse=True)


def test_schedule_free_is_looked_at_where_it_is_shipped():
    run = Run(recipe("Schedule-Free AdamW"), prepared())
    for _ in range(run.steps_an_epoch + 2):
        run.advance()
    trained = copy.deepcopy(list(run.model.parameters()))
    refreshed = []
    with run.optimizer.shipped(lambda: refreshed.append(True)):
        assert any(
            not torch.equal(p, q) for p, q in zip(trained, run.model.parameters(), strict=True)
        )
    assert refreshed
    for p, q in zip(trained, run.model.parameters(), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize(
    ("name", "alpha", "message"),
    [
        ("Lion", 0.1, r"optimizer must be one of 'AdaHB', .*, got 'Lion'"),
        ("Adam", 0.0, r"alpha must be a number in \(0, inf\)"),
    ],
)
def test_what_cannot_be_made(name, alpha, message):
    with pytest.raises(ValueError, match=message):
        Run(recipe(name, alpha=alpha), prepared())


# ---------------------------------------------------------------- the loop


def test_a_run_is_repeated_bit_for_bit():
    one, same = (train(Run(recipe(), prepared())) for _ in range(2))
    other = train(Run(recipe(seed=1), prepared()))
    for key in one:
        assert key == "seconds" or one[key] == same[key]
    assert one["train_loss"] != other["train_loss"]


def test_runs_in_turns_are_the_runs_alone():
    data = prepared()
    recipes = [recipe(seed=seed, epochs=1 + seed) for seed in range(4)]
    together = dict(
        train_together(((k, lambda r=r: Run(r, data)) for k, r in enumerate(recipes)), 3)
    )
    assert len(together) == 4
    for k, r in enumerate(recipes):
        alone = train(Run(r, data))
        curves = together[k].result()
        assert curves["train_loss"] == alone["train_loss"]
        assert curves["test_accuracy"] == alone["test_accuracy"]


def test_an_epoch_sees_whole_batches_of_every_sample_at_most_once():
    run, seen = Run(recipe(batch=20), prepared()), []
    assert run.steps_an_epoch == 4
    take = type(run.data.train).take

    def noting(batches, rows):
        if batches is run.data.train and isinstance(rows, torch.Tensor):
            seen.extend(rows.tolist())
        return take(batches, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(run.data.train), "take", noting)
        while not run.advance():
            pass
    assert len(seen) == 80 == len(set(seen))


def test_what_is_held_out_is_not_trained_on():
    whole, data = prepared(), prepared(held_out=16)
    assert (len(data.train), len(data.held_out), len(whole.train)) == (80, 16, 96)
    kept = {tuple(x.flatten().tolist()) for x in data.held_out.x}
    assert not any(tuple(x.flatten().tolist()) in kept for x in data.train.x)
    curves = train(Run(recipe(), data))
    assert len(curves["held_out_accuracy"]) == 3
    assert "held_out_accuracy" not in train(Run(recipe(epochs=1), whole))


def test_the_mean_image_is_that_of_what_is_trained_on():
    data = prepared(held_out=16, centred=True)
    for images, expected in ((data.train, 0.0), (data.held_out, None)):
        mean = (images.x.float() / 255 - images.mean).mean(0).abs().max()
        assert float(mean) < 1e-6 if expected == 0.0 else float(mean) > 1e-3


def test_the_penalty_is_in_the_gradient_and_not_in_the_curves():
    data = prepared(centred=True)
    run = Run(recipe("SGD", network="resnet20"), data)
    before = [w.detach().clone() for w in run._decayed]
    run._begin_epoch()
    run._rows.copy_(run._permutation[:16])
    run._train()
    assert len(before) == 21
    plain = Run(recipe("SGD", network="resnet20"), data)
    plain._decayed = []
    plain._begin_epoch()
    plain._rows.copy_(run._rows)
    plain._train()
    assert float(run._running) == float(plain._running)
    weights = [m.weight for m in plain.model.modules() if isinstance(m, nn.Conv2d)]
    for w, p, q in zip(before, run._decayed, weights, strict=True):
        torch.testing.assert_close(p.grad, q.grad + 2e-4 * w, rtol=1e-4, atol=1e-7)


def test_a_batch_larger_than_the_data():
    with pytest.raises(ValueError, match="batch must be at most the 96 training images, got 97"):
        Run(recipe(batch=97), prepared())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=on_gpu) for name in (*rivals.PAPER, *rivals.MODERN)]
)
def test_a_captured_run_is_the_eager_one(name):
    data = prepare(stripes(96, 0), stripes(40, 1), 3, held_out=0, centred=False, device="cuda")
    captured = train(Run(recipe(name), data, device="cuda"))
    eager = train(Run(recipe(name), data, device="cuda", captured=False, compiled=False))
    np.testing.assert_allclose(captured["train_loss"], eager["train_loss"], rtol=1e-3)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=on_gpu)])
def test_runs_in_flight_on_the_device(device):
    data = prepare(stripes(96, 0), stripes(40, 1), 3, held_out=0, centred=False, device=device)
    made = ((k, lambda k=k: Run(recipe(seed=k), data, device=device)) for k in range(4))
    for k, run in train_together(made, 3):
        curves = run.result()  # asked for while the device is busy
        alone = train(Run(recipe(seed=k), data, device=device))
        for name in ("train_loss", "test_accuracy", "final_loss"):
            np.testing.assert_allclose(curves[name], alone[name], rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=on_gpu)])
def test_curves_are_read_when_the_device_has_made_them(device):
    """The host is far ahead: without waiting, the last epochs are what memory held before."""
    data = prepare(
        stripes(20_000, 0), stripes(5_000, 1), 3, held_out=0, centred=False, device=device
    )
    run = Run(recipe(batch=500, network="resnet18", epochs=3), data, device=device)
    curves = train(run)
    torch.cuda.synchronize()
    assert curves == run.result()
    assert 0 <= curves["test_accuracy"][-1] <= 1
