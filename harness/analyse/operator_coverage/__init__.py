"""Which operators an export can meet, and which of them have an operator case."""
