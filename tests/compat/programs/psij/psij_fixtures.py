"""What PSI/J's tests ask for and its source distribution lacks: here for its executor `rp` alone."""

import pytest
from executor_test_params import ExecutorTestParams


@pytest.fixture
def execparams() -> ExecutorTestParams:
    return ExecutorTestParams('rp')
