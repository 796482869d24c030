from .formats import read_trace as read_trace
from .plan import CapacityPlan as CapacityPlan, plan_capacity as plan_capacity
from .replay import Replay as Replay
from .report import TIMES as TIMES
from .search import Tried as Tried
from .slo import parse_slo as parse_slo
from .sweep import Sweep as Sweep, sweep_capacity as sweep_capacity
from .trace import Trace as Trace, poisson_trace as poisson_trace
