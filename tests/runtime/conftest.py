"""The runtime exists for Python 3.13 and later; before, the run's header says that these tests are not run."""

import sys

collect_ignore_glob = [] if sys.version_info >= (3, 13) else ["test_*.py"]
