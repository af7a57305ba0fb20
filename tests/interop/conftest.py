"""What Keras runs on is said in the environment: it is checked in processes of its own."""

import os

collect_ignore = [] if "KERAS_BACKEND" in os.environ else ["keras_checks.py"]
