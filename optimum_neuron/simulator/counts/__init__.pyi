from .plain import from_plain as from_plain, to_plain as to_plain
from .store import CountFile as CountFile, count_file as count_file, counts_folder as counts_folder
from .upkeep import counts_status as counts_status, prune_counts as prune_counts
