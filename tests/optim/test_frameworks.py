"""What frameworks do with an optimizer: wrap it, label its groups, save it and load it again."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from adahb import AdaHB
from adahb.sets import L2Ball

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning"),
]


@pytest.fixture
def accelerate():
    """The module, without what a test before has left in its global state."""
    module = pytest.importorskip("accelerate")
    yield module
    module.state.AcceleratorState._reset_state(reset_partial_state=True)


def groups(weight, bias):
    """A constrained group and a free one, with the labels that frameworks put on groups."""
    return [
        {"params": [weight], "constraint": L2Ball(0.5), "name": "weight", "lr_scale": 1.0},
        {"params": [bias], "name": "bias"},
    ]


def same(one, other):
    return all(map(torch.equal, one.parameters(), other.parameters()))


def lines(count=16):
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(count, 3, generator=generator))


def linear():
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.mul_(0.1)
    return model


def test_accelerate_accumulates_and_restores(accelerate, tmp_path):
    """Steps are those of a loop with the mean gradient; a saved state comes back."""
    model, twin = linear(), linear()
    plain = AdaHB(groups(twin.weight, twin.bias), tick=2)
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, batches = accelerator.prepare(
        model, AdaHB(groups(model.weight, model.bias), tick=2), DataLoader(lines(), batch_size=4)
    )
    for _ in range(3):
        for (x,) in batches:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).square().mean())
                optimizer.step()
                optimizer.zero_grad()
        accelerator.save_state(tmp_path)
        accelerator.load_state(tmp_path)
        for (x,) in DataLoader(lines(), batch_size=8):
            plain.zero_grad()
            twin(x).square().mean().backward()
            plain.step()
    assert {int(state["clock"]) for state in optimizer.state.values()} == {6}
    for p, expected in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, expected, rtol=1e-5, atol=1e-7)


def test_lightning_resumes(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.linear = linear()

        def training_step(self, batch):
            return self.linear(batch[0]).square().sum()

        def configure_optimizers(self):
            optimizer = AdaHB(groups(self.linear.weight, self.linear.bias), tick=2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    def fitted(epochs, resumed=None):
        module = Module()
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            accumulate_grad_batches=2,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        trainer.fit(module, DataLoader(lines(), batch_size=4), ckpt_path=resumed)
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        return module

    straight = fitted(4)
    fitted(2)
    resumed = fitted(4, tmp_path / "last.ckpt")
    assert same(straight, resumed)
    assert not same(straight, fitted(2))


@pytest.mark.parametrize("made_by", ["user", "trainer"])
def test_the_trainer_of_transformers_resumes(accelerate, tmp_path, made_by):
    transformers = pytest.importorskip("transformers")
    data = [{"x": torch.randn(3)} for _ in range(16)]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear()

        def forward(self, x):
            return {"loss": self.linear(x).square().sum()}

    def trained(steps, folder, resume=False):
        model = Model()
        chosen = {"optimizer_cls_and_kwargs": (AdaHB, {"lr": 1e-2, "state_dtype": "bf16"})}
        if made_by == "user":
            optimizer = AdaHB(groups(model.linear.weight, model.linear.bias), tick=2)
            chosen = {"optimizers": (optimizer, None)}
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=tmp_path / folder,
                max_steps=steps,
                per_device_train_batch_size=4,
                lr_scheduler_type="constant",
                weight_decay=0.1,
                use_cpu=True,
                save_steps=3,
                report_to="none",
                disable_tqdm=True,
                logging_strategy="no",
                remove_unused_columns=False,
            ),
            train_dataset=data,
            **chosen,
        )
        trainer.train(resume_from_checkpoint=resume)
        return model, trainer.optimizer

    straight, optimizer = trained(6, "straight")
    trained(3, "parts")
    resumed, _ = trained(6, "parts", resume=True)
    assert same(straight, resumed)
    assert {int(state["clock"]) for state in optimizer.state.values()} == {6}
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    assert decays == ([0.0, 0.0] if made_by == "user" else [0.1, 0.0])


@pytest.mark.parametrize("key", ["lr_scales", "nam", "wd"])
def test_labels_are_not_a_door_for_typos(key):
    with pytest.raises(ValueError, match=f"no option '{key}'"):
        AdaHB([{"params": [torch.nn.Parameter(torch.zeros(2))], key: 1.0}])
