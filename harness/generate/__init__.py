"""Sources of invocations: drawn from operator cases, sampled, or kept from earlier runs."""
