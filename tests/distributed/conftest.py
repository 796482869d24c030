"""Models and processes of the trainer's tests."""

from tests.trainer.conftest import bert, built, llama  # noqa: F401  (fixtures)
