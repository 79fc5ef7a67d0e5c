"""`python -m gausslens` is the command `gausslens`."""

from .cli.main import main

raise SystemExit(main())
