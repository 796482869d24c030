from . import backend as backend, cache as cache, calls as calls, report as report
from .calls import MODEL as MODEL, Calls as Calls, numbered as numbered, open_track as open_track
from .hosted import ALL as ALL, check_with_host as check_with_host
from .report import compile_report as compile_report

def neuron(graph_module: object, example_inputs: list, **keywords: object) -> object: ...
