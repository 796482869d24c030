from .config import Entry as Entry
from .limits import LIMITS as LIMITS, Limit as Limit
from .measure import BUDGETS as BUDGETS, Measured as Measured
from .report import BudgetReport as BudgetReport, Row as Row, check_budget as check_budget, shown as shown
