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
