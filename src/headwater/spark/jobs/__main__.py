"""`python -m headwater.spark.jobs NAME --...`; see the package."""

import sys

from headwater.spark.commandline import main

sys.exit(main(sys.argv[1:], "python -m headwater.spark.jobs"))
