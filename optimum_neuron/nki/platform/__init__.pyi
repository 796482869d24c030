from .rules import check as check, problems_of as problems_of
from .syntax import Problem as Problem
