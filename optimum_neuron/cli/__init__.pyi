from . import machine as machine
from .arguments import (
    add_compile_arguments as add_compile_arguments,
    add_graph_arguments as add_graph_arguments,
    add_size_arguments as add_size_arguments,
    digits as digits,
    number_type as number_type,
    options_from as options_from,
    positive_int as positive_int,
)
from .errors import next_command as next_command, run_guarded as run_guarded
from .export import NeuronExportCommand as NeuronExportCommand
from .neuron import NeuronCommand as NeuronCommand
from .output import Out as Out, to_json as to_json
from .parser import NeuronParser as NeuronParser
from .profile import DEFAULT_TOP as DEFAULT_TOP, show_profile as show_profile
from .serve import ServeCommand as ServeCommand
from .train import TrainCommand as TrainCommand
