"""Root causes of failures, their priority by use, and known issues: reading a record, running nothing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
