"""`python -m caffejax`."""

import sys

from .cli import main

sys.exit(main())
