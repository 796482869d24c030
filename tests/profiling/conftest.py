"""A profile that several tests read."""

from __future__ import annotations

import pytest

from optimum_neuron.profiling import profile_folder


@pytest.fixture(scope="package")
def profile(exported):
    return profile_folder(exported, prompt_length=20, num_steps=3)
