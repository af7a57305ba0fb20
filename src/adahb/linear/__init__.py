"""Linear models: exact constrained stochastic training at the cost of the rows' nonzeros."""
