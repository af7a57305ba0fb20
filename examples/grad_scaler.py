"""AdaHB in a plain loop with float16 and torch's GradScaler.

The scale begins too high, on purpose: a step whose gradients overflowed changes nothing, the
method's clock included, and the next one is made with half the scale.  The optimizer divides by the
scale itself, so that `scaler.unscale_` is needed only if gradients are to be looked at or clipped.

    python examples/grad_scaler.py
"""

import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from adahb import AdaHB


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = AdaHB(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    calls = 0
    before = cross_entropy(model(x), y)
    for _ in range(10):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = cross_entropy(model(x[batch]), y[batch])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            calls += 1
    steps = int(optimizer.state[model[0].weight]["clock"])
    print(f"{calls} calls, of which {calls - steps} overflowed: t counts {steps}")
    print(f"loss {before:.3f} before, {cross_entropy(model(x), y):.3f} after 10 epochs")


if __name__ == "__main__":
    main()
