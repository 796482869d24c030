from .capacity import plan_page as plan_page, sweep_page as sweep_page
from .estimates import (
    comparison_page as comparison_page,
    estimate_page as estimate_page,
    option_of as option_of,
    training_page as training_page,
)
from .markup import (
    breakable as breakable,
    chip as chip,
    document as document,
    header as header,
    in_time as in_time,
    part as part,
    section as section,
    sorted_by as sorted_by,
    table as table,
)
from .notebook import embedded as embedded
from .page import Axis as Axis, Page as Page, plot_script as plot_script, rows_table as rows_table
from .quantities import (
    QUANTITIES as QUANTITIES,
    TRAINING_QUANTITIES as TRAINING_QUANTITIES,
    interval as interval,
    priced as priced,
    shown as shown,
    titles_of as titles_of,
)
from .reports import (
    benchmarks_page as benchmarks_page,
    buckets_page as buckets_page,
    check_page as check_page,
    move_page as move_page,
)
