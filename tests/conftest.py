"""What several test modules start from."""

import pytest


@pytest.fixture(scope="session")
def breast_cancer():
    """Hinge loss of the breast-cancer set, standardised: 569 samples, 30 features."""
    from adahb.experiments.hinge import hinge

    return hinge("breast_cancer")


@pytest.fixture(scope="session")
def solution():
    """Its certified optimum on the unit l1 ball."""
    from adahb.experiments.hinge import optimum

    return optimum("breast_cancer", 1.0)


@pytest.fixture
def one_thread():
    """Torch on one thread: on a busy machine, threads that wait for each other take for ever."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
