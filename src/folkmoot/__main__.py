"""`python -m folkmoot` is `folkmoot`."""

from folkmoot.cli import main

main()
