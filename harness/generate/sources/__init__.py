"""Sources of invocations, one per file; `base` is the protocol, `registry` names them."""
