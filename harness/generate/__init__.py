"""Where invocations come from: drawn from operator cases, sampled, or kept from earlier runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
