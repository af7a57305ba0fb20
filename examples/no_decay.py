"""Weight decay as timm does it: none for biases, normalisations and what the model names.

Models of timm say by `no_weight_decay()` which parameters to spare.  `no_decay_groups` spares those
and, like timm, whatever has fewer than two axes; the groups carry names, so that a log or a
checkpoint says what they are.  The groups that timm makes are taken too, by layer or not.

    python examples/no_decay.py
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

from adahb import AdaHB
from adahb.optim import no_decay_groups


class TinyViT(nn.Module):
    """A vision transformer of one block over the sixteen 2 x 2 patches of a digit."""

    def __init__(self, width=32):
        super().__init__()
        self.patches = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 17, width))
        self.block = nn.TransformerEncoderLayer(
            width, nhead=2, dim_feedforward=64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, 10)

    def no_weight_decay(self):
        return {"cls_token", "pos_embed"}

    def forward(self, x):
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1)
        return self.head(self.block(tokens + self.pos_embed)[:, 0])


def main():
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(digits.target)
    model = TinyViT()
    optimizer = AdaHB(no_decay_groups(model, weight_decay=0.05))
    for group in optimizer.param_groups:
        print(f"weight decay {group['weight_decay']}: {', '.join(group['param_names'])}")
    before = cross_entropy(model(x), y)
    for _ in range(10):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    print(f"loss {before:.3f} before, {cross_entropy(model(x), y):.3f} after 10 epochs")


if __name__ == "__main__":
    main()
