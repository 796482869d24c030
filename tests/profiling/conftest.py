"""A profile that several tests read."""

from __future__ import annotations

import pytest

from optimum_neuron.profiling import profile_folder


@pytest.fixture(scope="package")
def profile(export_folder):
    return profile_folder(export_folder, prompt_length=20, num_steps=3)
