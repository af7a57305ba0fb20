"""AdaHB under Accelerate: gradients accumulated over four batches, in mixed precision.

Accelerate calls the optimizer only when the gradients of four batches have been added up, so the
method's t counts those calls, not the batches.  The weights stay in float32, and what is computed
with them is bfloat16; that needs no scaling of the loss.

    python examples/accelerate_accumulation.py
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from adahb import AdaHB


def main():
    set_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    accelerator = Accelerator(cpu=True, mixed_precision="bf16", gradient_accumulation_steps=4)
    model, optimizer, batches = accelerator.prepare(
        model,
        AdaHB(model.parameters()),
        DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True),
    )
    before = cross_entropy(model(x), y)
    for _ in range(10):
        for inputs, labels in batches:
            with accelerator.accumulate(model):
                loss = cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    print(f"loss {before:.3f} before, {cross_entropy(model(x), y):.3f} after 10 epochs")


if __name__ == "__main__":
    main()
