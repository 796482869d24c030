from . import backend as backend, cache as cache, calls as calls, report as report
from .backend import choose_host_code as choose_host_code
from .calls import MODEL as MODEL, Calls as Calls, numbered as numbered, open_track as open_track
from .estimate import estimate as estimate, peak_tflops as peak_tflops
from .host_graph import border_of as border_of, on_device as on_device
from .hosted import ALL as ALL
from .options import CompileOptions as CompileOptions
from .products import use_onednn as use_onednn
from .report import compile_report as compile_report

def neuron(graph_module: object, example_inputs: list, **keywords: object) -> object: ...
