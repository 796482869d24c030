"""Lightning's progress bar and TensorBoard logger, on one of the ranks, by NxD's names.

trainer = Trainer(callbacks=[NeuronTQDMProgressBar()], logger=NeuronTensorBoardLogger(save_dir="logs"))
"""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError
from . import parallel_state

try:
    from lightning.pytorch.callbacks import TQDMProgressBar
    from lightning.pytorch.loggers import TensorBoardLogger
except ImportError as error:
    message = "neuronx_distributed.lightning needs Lightning."
    raise ConfigError(message, hint="pip install 'optimum-neuron-sim[lightning]'", package="lightning") from error


def _shows(log_rank0: bool) -> bool:
    """Whether this rank shows progress: one rank, of the first stage or of the last one, which has the loss."""
    stage = 0 if log_rank0 else parallel_state.PIPELINE.size() - 1
    ranks = (parallel_state.DATA.rank(), parallel_state.TENSOR.rank(), parallel_state.PIPELINE.rank())
    return ranks == (0, 0, stage)


class NeuronTQDMProgressBar(TQDMProgressBar):
    """Lightning's progress bar, on one rank."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Disable the bar on other ranks.

        Args:
            trainer: the trainer.
            pl_module: the module.
            stage: as of Lightning.
        """
        super().setup(trainer, pl_module, stage)
        if not _shows(pl_module.log_rank0):
            self.disable()


class NeuronTensorBoardLogger(TensorBoardLogger):
    """Lightning's logger for TensorBoard.

    Args:
        save_dir: the folder.
        log_rank0: values of the first stage; else of the last one, which has the loss.
        **options: of Lightning's logger.
    """

    def __init__(self, save_dir: Any, log_rank0: bool = False, **options: Any) -> None:
        super().__init__(save_dir, **options)
        self.log_rank0 = log_rank0
