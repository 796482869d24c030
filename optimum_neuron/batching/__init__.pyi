from .blocks import BlockPool as BlockPool, chain_hashes as chain_hashes
from .candidates import CandidateSampler as CandidateSampler, candidate_sampler as candidate_sampler
from .clock import Clock as Clock, arrival_s as arrival_s, serve_trace as serve_trace
from .engine import Engine as Engine
from .manager import BatchingManager as BatchingManager
from .request import Adapter as Adapter, Request as Request, SimulatedTimes as SimulatedTimes
from .runner import Runner as Runner
from .sampling import make_sampler as make_sampler
from .scheduler import Plan as Plan, Scheduler as Scheduler
from .settings import read_settings as read_settings
