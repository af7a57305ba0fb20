"""Readers for public data sets, from a folder of yours or by a checked download.

load_libsvm   a set of the LIBSVM collection by its name, or any file in that format
"""

from adahb.data.libsvm import Dataset, load_libsvm
from adahb.data.registry import names

__all__ = ["Dataset", "load_libsvm", "names"]
