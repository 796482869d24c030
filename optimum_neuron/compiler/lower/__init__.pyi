from . import (
    aten as aten,
    background as background,
    choose as choose,
    onednn as onednn,
)
from .aten import HostFunction as HostFunction, aten_function as aten_function
from .background import Compiling as Compiling, compile_later as compile_later
from .choose import (
    CpuFeatures as CpuFeatures,
    HostLevel as HostLevel,
    compiler_knows_cpu as compiler_knows_cpu,
    probe_compiler as probe_compiler,
    probe_cpu as probe_cpu,
)
from .handles import Handle as Handle, Handles as Handles, handles_of as handles_of, tensors_of as tensors_of
from .library import CompiledFunction as CompiledFunction
from .lower import HostCode as HostCode, Mode as Mode, lower as lower
from .unit import Job as Job
