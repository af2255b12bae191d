"""What only running an operator can give, written beside a run for pages that run none."""
