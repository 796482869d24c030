from . import judge as judge, neuroncore_v1 as neuroncore_v1
from .base import find_rule as find_rule, known_ops as known_ops
from .call import (
    OpCall as OpCall,
    base_name as base_name,
    is_users as is_users,
    module_path as module_path,
    op_name as op_name,
    operator_of as operator_of,
    region_of as region_of,
    source_line as source_line,
    symbols as symbols,
    values_of as values_of,
)
from .codes import to_markdown as to_markdown
from .decompose import decompose as decompose
from .indexing import combines as combines
from .judge import MAKES as MAKES, RULE as RULE, UNKNOWN as UNKNOWN, USES as USES
from .matmul import product_operands as product_operands
from .report import (
    PLACED as PLACED,
    OpCount as OpCount,
    Report as Report,
    can_be_hosted as can_be_hosted,
    check_graph as check_graph,
    count_rulings as count_rulings,
    group_key as group_key,
    host_ops as host_ops,
    judge_nodes as judge_nodes,
)
