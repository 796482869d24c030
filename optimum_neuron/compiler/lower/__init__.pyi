from . import (
    aten as aten,
    background as background,
    choose as choose,
    onednn as onednn,
    store as store,
    winograd as winograd,
)
from .arithmetic import HostArithmetic as HostArithmetic
from .aten import HostFunction as HostFunction, aten_function as aten_function
from .background import Compiling as Compiling, compile_later as compile_later
from .choose import (
    LIBRARY_ROWS as LIBRARY_ROWS,
    MAX_STREAMED_ROWS as MAX_STREAMED_ROWS,
    CpuFeatures as CpuFeatures,
    HostLevel as HostLevel,
    choose_level as choose_level,
    compiler_knows_cpu as compiler_knows_cpu,
    name_level as name_level,
    probe_compiler as probe_compiler,
    probe_cpu as probe_cpu,
)
from .convolutions import fuse as fuse
from .functional import trace as trace
from .generate import generate as generate
from .handles import Handle as Handle, Handles as Handles, handles_of as handles_of, tensors_of as tensors_of
from .library import CompiledFunction as CompiledFunction, load_function as load_function
from .lower import HostCode as HostCode, Mode as Mode, lower as lower
from .onednn import CONVOLUTION as CONVOLUTION
from .prepare import (
    NOTHING as NOTHING,
    Preparation as Preparation,
    find as find,
    plan_preparations as plan_preparations,
)
from .store import locate as locate, record_path as record_path
from .unit import KERNELS as KERNELS, Job as Job, compile_jobs as compile_jobs, compiler_command as compiler_command
