"""A plugin of pytest for numba-cuda: the fixture that its tests of a device ask for, which is not installed."""

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    """Where a check of the generated code fails, nothing is dumped."""
    request.cls._dump_failed_filechecks = False  # pylint: disable=protected-access
