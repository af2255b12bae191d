"""Looking closer at a failure or an operator: shrinking, scripts, divergence, coverage, groups."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
