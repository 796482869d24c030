"""Shows the time of a run: compiled programs are run here and timed as an estimate times them. All simulated.

    operators.py    the time of one call, divided among its operators
    schedule.py     calls on one clock of host and cores; engines inside a call
    profile.py      what a profile says, as plain data
    table.py        its bottleneck table
    recorder.py     a recording of the runtime as a profile: `record`
    folder.py       an exported folder, run on dummy inputs
    pipeline.py     an exported diffusion pipeline, likewise
    neff.py         a NEFF with its weights, likewise
    script.py       a Python script, run in a child; child.py is that child
    perfetto.py     a trace for ui.perfetto.dev
    torch_profiler.py   lanes of the cores in the trace of torch.profiler
    report.py       a self-contained page; drawing.py has what page.js draws in it
    kernel_page.py  a page of one NKI kernel, or of two versions of it

It does not depend on the command line.

    from optimum_neuron.profiling import record

    with record("my model") as recorder:
        model(**inputs)
    print(recorder.profile().rows()[0])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
