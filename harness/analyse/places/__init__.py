"""Which lines of a converter a failure comes of, and small changes that repair them."""
