"""The heavy-ball methods as `torch.optim` optimizers."""

from adahb.optim.variants import HB, NAG, PSG, AdaHB

__all__ = ["HB", "NAG", "PSG", "AdaHB"]
