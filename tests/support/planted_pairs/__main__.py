"""See `planted_pairs`."""

from planted_pairs.commands import main

main()
