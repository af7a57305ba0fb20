"""The methods in other frameworks: `adahb.interop.optax` and `adahb.interop.keras`.

Options have the names, defaults and meanings of the torch optimizers in `adahb.optim`, and the
numbers that come out are theirs.
"""
