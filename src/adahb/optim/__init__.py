"""The heavy-ball methods as `torch.optim` optimizers."""

from adahb.optim.groups import no_decay_groups
from adahb.optim.variants import HB, NAG, PSG, AdaHB

__all__ = ["HB", "NAG", "PSG", "AdaHB", "no_decay_groups"]
