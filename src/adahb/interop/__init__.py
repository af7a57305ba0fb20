"""The methods in other frameworks: `adahb.interop.optax` for JAX, `adahb.interop.keras` for Keras 3.

Options have the names, defaults and meanings of the torch optimizers in `adahb.optim`, and the
numbers that come out are theirs.
"""
