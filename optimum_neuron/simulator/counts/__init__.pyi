from .plain import from_plain as from_plain, to_plain as to_plain
from .store import COUNTS as COUNTS, CountFile as CountFile, count_file as count_file
