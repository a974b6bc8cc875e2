"""`python -m allograft run program` is `allograft run program`."""

from ._command import main

main()
