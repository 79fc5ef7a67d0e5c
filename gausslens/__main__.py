"""`python -m gausslens` is the command `gausslens`."""

from .cli import main

raise SystemExit(main())
