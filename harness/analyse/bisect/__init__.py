"""Which release of a package changed a verdict."""
