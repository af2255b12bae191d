"""What everything passes on: invocations, dtypes, overloads, tensors, and what plugs in."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
