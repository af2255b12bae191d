"""See `mutants`."""

from mutants.commands import main

main()
