from .calibrate import Calibration as Calibration, calibrate as calibrate
from .compared import RunComparison as RunComparison, compare_run as compare_run
from .measured import MeasuredRun as MeasuredRun
