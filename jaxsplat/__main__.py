"""`python -m jaxsplat` is the command `jaxsplat`."""

import sys

from jaxsplat.cli import main

sys.exit(main())
