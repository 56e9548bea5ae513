"""The script for spark-submit: `spark-submit $(headwater pipeline --script) NAME --...`. Alone in its directory, which
Spark puts on the path of all modules.
"""

import sys

from headwater.spark.commandline import main

sys.exit(main(sys.argv[1:], "headwater_pipeline.py"))
