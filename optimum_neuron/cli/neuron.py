"""`optimum-cli neuron`: the group of commands around compiled models; called bare it prints its help."""

from __future__ import annotations

from optimum.commands.base import CommandInfo

from .breakeven import BreakevenCommand
from .buckets import BucketsCommand
from .budget import BudgetCommand
from .cache import CacheCommand
from .calibrate import CalibrateCommand, CompareRunCommand
from .check import CheckCommand
from .consolidate import ConsolidateCommand
from .demo import DemoCommand
from .doctor import DoctorCommand
from .estimate import EstimateCommand
from .estimate_training import EstimateTrainingCommand
from .fetch import FetchCommand
from .inspect import InspectCommand
from .models import ModelsCommand
from .nki import NkiCommand
from .parser import CommandGroup, subcommands
from .profile import ProfileCommand
from .serve import ServeCommand
from .studio import StudioCommand
from .train import TrainCommand


class NeuronCommand(CommandGroup):
    COMMAND = CommandInfo(name="neuron", help="Compile cache, diagnosis and demo of simulated AWS Neuron.")
    SUBCOMMANDS = subcommands(
        BreakevenCommand,
        BucketsCommand,
        BudgetCommand,
        CacheCommand,
        CalibrateCommand,
        CheckCommand,
        CompareRunCommand,
        ConsolidateCommand,
        DemoCommand,
        DoctorCommand,
        EstimateCommand,
        EstimateTrainingCommand,
        FetchCommand,
        InspectCommand,
        ModelsCommand,
        NkiCommand,
        ProfileCommand,
        ServeCommand,
        StudioCommand,
        TrainCommand,
    )
