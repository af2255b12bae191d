"""From invocations to verdicts: batches, isolation, splitting."""
