"""AdaHB in a PyTorch Lightning module: what `configure_optimizers` returns, and nothing else.

There is no learning-rate scheduler and no weight-averaging callback to add: step size and momentum
follow the method's own schedule, and the weights in place are the averaged ones.

    python examples/lightning_module.py
"""

import lightning
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from adahb import AdaHB


class Digits(lightning.LightningModule):
    """A small network for the 8 x 8 digits of scikit-learn."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        )

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch):
        x, y = batch
        return cross_entropy(self(x), y)

    def configure_optimizers(self):
        return AdaHB(self.parameters())


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    model = Digits()
    before = cross_entropy(model(x), y)
    trainer = lightning.Trainer(
        max_epochs=10,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))
    print(f"loss {before:.3f} before, {cross_entropy(model(x), y):.3f} after 10 epochs")


if __name__ == "__main__":
    main()
