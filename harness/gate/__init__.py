"""Whether a run is as expected: baselines, goldens, upgrades, and two runs compared."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
