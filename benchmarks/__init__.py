"""Speed of the kernels against a floor and against peers; run with ``make bench``."""
