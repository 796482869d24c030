from .check import check_model as check_model
from .migration import MigrationReport as MigrationReport, check_migration as check_migration
from .report import (
    FAIL_CONDITIONS as FAIL_CONDITIONS,
    CheckReport as CheckReport,
    require_conditions as require_conditions,
)
