"""What Keras does depends on a variable of the environment: it is checked in processes of its own."""

import os

collect_ignore = [] if "KERAS_BACKEND" in os.environ else ["keras_checks.py"]
