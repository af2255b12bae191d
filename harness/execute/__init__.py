"""Running cases in a process that may die: reference, export, check, load, run, compare."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
