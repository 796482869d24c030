from .store import COUNTS as COUNTS, CountFile as CountFile, count_file as count_file
