from . import clock as clock
from .break_even import Breakeven as Breakeven, breakeven as breakeven
from .calibration import (
    Calibration as Calibration,
    MeasuredRun as MeasuredRun,
    RunComparison as RunComparison,
    calibrate as calibrate,
    compare_run as compare_run,
)
from .capacity import (
    TIMES as TIMES,
    CapacityPlan as CapacityPlan,
    Replay as Replay,
    Sweep as Sweep,
    Trace as Trace,
    Tried as Tried,
    parse_slo as parse_slo,
    plan_capacity as plan_capacity,
    poisson_trace as poisson_trace,
    read_trace as read_trace,
    sweep_capacity as sweep_capacity,
)
from .captures import capture_model as capture_model
from .clients import Served as Served, on_copies as on_copies
from .clock import (
    call_cost as call_cost,
    call_time as call_time,
    core_usage as core_usage,
    known_cost as known_cost,
    serving_cost as serving_cost,
    track_time as track_time,
    work_on_track as work_on_track,
)
from .compiled import (
    SERVED_AS as SERVED_AS,
    generates as generates,
    is_paged as is_paged,
    kind_of_generator as kind_of_generator,
    work_of_call as work_of_call,
)
from .continuous import (
    poisson_arrivals as poisson_arrivals,
    simulate_requests as simulate_requests,
    summarize as summarize,
)
from .device_time import (
    ATTENTION_READ_S as ATTENTION_READ_S,
    CoreRates as CoreRates,
    DeviceTime as DeviceTime,
    all_reduce_s as all_reduce_s,
    core_rates as core_rates,
    device_time as device_time,
)
from .entry import (
    estimate as estimate,
    estimate_program as estimate_program,
)
from .fitted import (
    FORMAT as FORMAT,
    Band as Band,
    Constants as Constants,
    CoreConstants as CoreConstants,
    HostConstants as HostConstants,
    constants as constants,
    flat as flat,
)
from .graph_choice import chunk_graphs as chunk_graphs
from .graphs import kind_of_graph as kind_of_graph
from .grid import estimate_grid as estimate_grid
from .known import COUNTS as COUNTS, checkpoint_hash as checkpoint_hash, count_file as count_file
from .machine import Machine as Machine, as_constants as as_constants, choose_machine as choose_machine
from .pipelined import (
    divided as divided,
    run_time as run_time,
)
from .programs import auto_cast_of as auto_cast_of
from .ranking import Comparison as Comparison, compare as compare
from .request import (
    KEYWORDS as KEYWORDS,
    EstimateRequest as EstimateRequest,
    keywords_of_compiled as keywords_of_compiled,
)
from .result import (
    EXACT as EXACT,
    NEURONCORE_PIPELINE as NEURONCORE_PIPELINE,
    QUANTITIES as QUANTITIES,
    SERVED as SERVED,
    WIDE as WIDE,
    Estimate as Estimate,
    band_of as band_of,
    scale_of as scale_of,
)
from .serving import (
    ServingPlan as ServingPlan,
    ServingTimes as ServingTimes,
    host_cost as host_cost,
    plan_serving as plan_serving,
    prompt_host_s as prompt_host_s,
    served_rows as served_rows,
    serving_times as serving_times,
    token_host_s as token_host_s,
)
from .speculation import Speculation as Speculation, tokens_per_check as tokens_per_check
from .stacks import (
    FIRST_BATCH_FIRST_SDK as FIRST_BATCH_FIRST_SDK,
    FIRST_FUSED_SDK as FIRST_FUSED_SDK,
    FIRST_PADDED_SDK as FIRST_PADDED_SDK,
    Padding as Padding,
    Stack as Stack,
    parse_sdk as parse_sdk,
    stack_at as stack_at,
)
from .training import TrainingEstimate as TrainingEstimate, estimate_training as estimate_training
