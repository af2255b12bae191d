"""Where invocations come from: drawn from operator cases, sampled, or kept from earlier runs."""
