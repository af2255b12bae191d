"""From a failure to the smallest invocation that fails in the same way, and to what it depends on."""
