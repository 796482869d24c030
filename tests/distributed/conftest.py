"""Models and processes of the trainer's tests."""

from tests.trainer.conftest import bert, built, llama, make, train  # noqa: F401  (fixtures)
