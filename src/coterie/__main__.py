"""`python -m coterie` is the command line."""

import sys

try:
    from coterie.cli import main
except KeyboardInterrupt:  # while the interpreter was still loading
    sys.exit(130)

main()
