"""The record of a run: its schema, writing it as the run goes, reading it back, archives of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
