"""Four ways to make one update; ``adahb.optim.update`` says which."""
