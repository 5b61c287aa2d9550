# SPDX-License-Identifier: Apache-2.0
"""Fresh random data for every test; a failure shows the seed, and OCTILE_TEST_SEED repeats it."""

import os

import numpy as np
import pytest


@pytest.fixture
def rng(record_property) -> np.random.Generator:
    seed = int(os.environ.get("OCTILE_TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
    record_property("seed", seed)
    print(f"seed: OCTILE_TEST_SEED={seed}")
    return np.random.default_rng(seed)


def pytest_report_header() -> str:
    import octile

    return f"octile {octile.__version__} at {os.path.dirname(octile.__file__)}"
