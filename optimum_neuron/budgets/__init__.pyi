from .config import Entry as Entry, find_budget as find_budget, read_budget as read_budget
from .limits import LIMITS as LIMITS, Limit as Limit
from .measure import Measured as Measured, measure as measure
from .report import BudgetReport as BudgetReport, Row as Row, check_budget as check_budget, record_file as record_file
