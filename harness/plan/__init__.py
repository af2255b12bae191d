"""From options to units of work, and running a unit: selection, sharding, reuse, blame."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
