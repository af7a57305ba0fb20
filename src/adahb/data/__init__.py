"""Readers for public data sets, from a folder of yours or by a checked download.

load_libsvm   a set of the LIBSVM collection by its name, or any file in that format
load_images   MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100
"""

from adahb.data.images import Images, Split, load_images
from adahb.data.libsvm import Dataset, load_libsvm
from adahb.data.registry import names

__all__ = ["Dataset", "Images", "Split", "load_images", "load_libsvm", "names"]
