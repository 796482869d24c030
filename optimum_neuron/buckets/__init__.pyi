from .lengths import read_lengths as read_lengths
from .suggest import BucketAdvice as BucketAdvice, BucketOption as BucketOption, suggest_buckets as suggest_buckets
